package node

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// CutShortError says that an attempt ended with its context, for another reason than
// its deadline: it has no result, and the task is to be planned again.
type CutShortError struct {
	Node string
	// Cause is the context's: a claim that was lost, a cancel, a shutdown.
	Cause error
}

func (e *CutShortError) Error() string {
	return fmt.Sprintf("belay: the attempt of node %s was cut short: %v", e.Node, e.Cause)
}

// Unwrap is the context's cause.
func (e *CutShortError) Unwrap() error { return e.Cause }

// Run executes one attempt: it calls the node's function on a goroutine of its own,
// waits for it, and turns what came back into a result. The caller decides what to do
// with a function that ignores ctx.
//
// A panic, and a function that ends its goroutine, are retryable failures
// (run.CodePanic). When ctx's deadline passed (ctx.Err or its cause is
// context.DeadlineExceeded), whatever the function answered came too late: a retryable
// failure (run.CodeTimeout). When ctx ended for another cause, an update, interrupt,
// snooze or skip is still the result, since the function came to its end; a failure of
// any kind is not, since it may be the cancellation's: Run then answers *CutShortError
// and no result. A function is not called at all once ctx has ended.
//
// Error texts are kept whole, with each byte that is not UTF-8 replaced by U+FFFD.
// Those of panics are bounded, and a panic value that is no text, error or number is
// told by its type only.
func (p *Prepared) Run(ctx context.Context, call *Call) (run.Result, error) {
	type answer struct {
		result run.Result
		err    error
	}
	answered := make(chan answer, 1)
	go func() {
		result, err := p.RunHere(ctx, call, func(result run.Result, err error) { answered <- answer{result, err} })
		answered <- answer{result, err}
	}()
	a := <-answered
	return a.result, a.err
}

// RunHere is Run on the caller's goroutine, for a host with goroutines at hand. A function that ends
// its goroutine ends the caller's: RunHere does not return then, and calls exiting, among the goroutine's
// deferred calls, with what Run would have answered. exiting must not be nil, nor panic.
func (p *Prepared) RunHere(ctx context.Context, call *Call, exiting func(run.Result, error)) (run.Result, error) {
	if call == nil {
		return run.Result{}, fmt.Errorf("%w: the call", ErrNilArgument)
	}
	if exiting == nil {
		return run.Result{}, fmt.Errorf("%w: what to do when the function ends the goroutine", ErrNilArgument)
	}
	node, ok := p.nodes[call.Node]
	if !ok {
		return run.Permanent(call.Node, run.Failure{
			Code: run.CodeError, Node: call.Node, Message: fmt.Sprintf("belay: the graph %s has no node %q", p.graph.ID, call.Node),
		}), nil
	}
	if call.Now == nil {
		c := *call
		c.Now = time.Now
		call = &c
	}
	o := attempt(ctx, call, node, exiting)
	return o.settled(ctx, call.Node)
}

// settled is what the outcome comes to after all that happened to the context.
func (o *outcome) settled(ctx context.Context, node string) (run.Result, error) {
	if ctx.Err() != nil {
		switch {
		case timedOut(ctx):
			return run.Retry(node, late(node, o), time.Time{}), nil
		case o.failed():
			return run.Result{}, &CutShortError{Node: node, Cause: context.Cause(ctx)}
		}
	}
	return o.result, nil
}

func timedOut(ctx context.Context) bool {
	return ctx.Err() != nil &&
		(errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(context.Cause(ctx), context.DeadlineExceeded))
}

// outcome is how one call of a Func ended.
type outcome struct {
	update map[string]value.Value
	err    error
	marks  marks
	crash  *run.Failure // a panic, or an ended goroutine
	result run.Result   // if the context did not end
}

// attempt calls the function. Reading what an error says, wraps and asks calls the node's
// own code again, so that happens under the same recover.
func attempt(ctx context.Context, call *Call, node bound, exiting func(run.Result, error)) (o outcome) {
	returned := false
	defer func() {
		if returned {
			return
		}
		crash := &run.Failure{Code: run.CodePanic, Node: call.Node}
		p := recover()
		if p != nil {
			crash.Message, crash.Details = "panic: "+panicText(p), stack(debug.Stack())
		} else {
			crash.Message = "the node's function ended its goroutine (runtime.Goexit) instead of returning"
		}
		o = outcome{crash: crash, result: run.Retry(call.Node, *crash, time.Time{})}
		if p == nil {
			exiting(o.settled(ctx, call.Node))
		}
	}()
	if ctx.Err() != nil {
		o.err = context.Cause(ctx) // a node of a cancelled run never begins
	} else {
		o.update, o.err = node.fn(context.WithValue(ctx, callKey{}, call), call)
	}
	if o.err != nil {
		o.marks = readMarks(o.err)
	} else if !node.canonical && len(o.update) > 0 {
		var err error
		if o.update, err = canonicalMembers(o.update); err != nil {
			o.err = &codedError{code: run.CodeInvalidUpdate, err: Permanent(invalidAt("writing the state", err))}
			o.marks = readMarks(o.err)
		}
	}
	o.result = o.answer(call.Node)
	returned = true
	return o
}

func (o *outcome) failed() bool {
	return o.crash != nil || o.err != nil && o.marks.failure()
}

// late is the failure of an attempt whose deadline passed.
func late(node string, o *outcome) run.Failure {
	f := run.Failure{Code: run.CodeTimeout, Node: node}
	switch {
	case o.crash != nil:
		f.Message, f.Details = "the attempt ran into its deadline: "+o.crash.Message, o.crash.Details
	case o.err != nil && o.marks.failure():
		f.Message, f.Details = "the attempt ran into its deadline: "+o.marks.text, o.marks.encoded
	default:
		f.Message = "the attempt ended after its deadline, so its answer does not count: give the node a longer timeout"
	}
	return f
}

// answer is what a function that returned in time came to.
func (o *outcome) answer(node string) run.Result {
	switch m := &o.marks; {
	case o.err == nil:
		return run.Completed(node, o.update)
	case m.permanent:
		return run.Permanent(node, m.failed(node))
	case m.failure():
		return run.Retry(node, m.failed(node), m.notBefore)
	case len(m.asks) > 1:
		return run.Permanent(node, run.Failure{
			Code: run.CodeInvalidAsk, Node: node, Message: "the node asked two questions at once: ask one, and the next after its answer",
		})
	case m.ask != nil:
		return ask(node, m.ask.question)
	case m.snooze != nil && m.snooze.until.IsZero():
		return run.Permanent(node, run.Failure{
			Code: run.CodeError, Node: node, Message: "the node snoozed until the zero time: pass the instant at which it is to run again",
		})
	case m.snooze != nil:
		return run.Snooze(node, m.snooze.until)
	default:
		return run.Skip(node, storable(m.skip.reason))
	}
}

func ask(node string, q Question) run.Result {
	out := run.Question{ID: q.ID, Field: q.Field, Deadline: q.Deadline}
	for _, part := range []struct {
		what string
		from any
		to   *value.Value
	}{{"prompt", q.Prompt, &out.Prompt}, {"default", q.Default, &out.Default}} {
		if part.from == nil {
			continue
		}
		v, err := value.Of(part.from)
		if err != nil {
			return invalidAsk(node, part.what, err)
		}
		*part.to = v
	}
	if q.Schema != nil {
		schema, err := value.Canonical(q.Schema)
		if err != nil {
			return invalidAsk(node, "schema", err)
		}
		out.Schema = schema
	}
	return run.Ask(node, out)
}

func invalidAsk(node, what string, err error) run.Result {
	return run.Permanent(node, run.Failure{
		Code: run.CodeInvalidAsk, Node: node, Message: fmt.Sprintf("the question's %s: %v", what, err),
	})
}

const (
	// maxPanic and maxStack bound what is kept of a panic, in bytes.
	maxPanic = 4 << 10
	maxStack = 8 << 10
)

// panicText is what a panic value says. A value that is neither text nor number is told
// by its type: formatting it could show data, or never end.
func panicText(p any) string {
	var text string
	switch v := p.(type) {
	case error, fmt.Stringer, string, bool,
		int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, uintptr, float32, float64:
		text = fmt.Sprint(v)
	default:
		text = fmt.Sprintf("a value of type %T", p)
	}
	text = storable(text)
	if len(text) > maxPanic {
		text = fmt.Sprintf("%s (%d more bytes left out)", strings.ToValidUTF8(text[:maxPanic], ""), len(text)-maxPanic)
	}
	return text
}

func stack(raw []byte) value.Value {
	text := storable(string(raw))
	if len(text) > maxStack {
		text = strings.ToValidUTF8(text[:maxStack], "") + "\n(more left out)"
	}
	v, err := value.Of(map[string]string{"stack": text})
	if err != nil {
		return nil
	}
	return v
}

// storable replaces each byte that is not UTF-8 by U+FFFD.
func storable(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return string([]rune(text))
}
