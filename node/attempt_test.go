package node_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

var (
	errPlain = errors.New("plain")
	errOther = errors.New("other")
)

func failure(code, message string) run.Failure {
	return run.Failure{Code: code, Message: message, Node: "n"}
}

func TestEveryAnswerIsAResult(t *testing.T) {
	later := noon.Add(time.Hour)
	question := node.Question{ID: "q", Prompt: map[string]any{"b": 1, "a": "<x>"}, Field: "f", Schema: value.Value(`{ "type": "boolean" }`), Deadline: later, Default: true}
	asked := run.Ask("n", run.Question{ID: "q", Prompt: value.Value(`{"a":"<x>","b":1}`), Field: "f", Schema: value.Value(`{"type":"boolean"}`), Deadline: later, Default: value.Value("true")})
	details := run.Failure{Code: run.CodeError, Message: "plain", Node: "n", Details: value.Value(`{"code":3}`)}

	tests := map[string]struct {
		err  error
		want run.Result
	}{
		"plain":       {errPlain, run.Retry("n", failure(run.CodeError, "plain"), time.Time{})},
		"ask":         {node.Ask(question), asked},
		"bare ask":    {node.Ask(node.Question{}), run.Ask("n", run.Question{})},
		"snooze":      {node.Snooze(later), run.Snooze("n", later)},
		"past snooze": {node.Snooze(noon.Add(-time.Hour)), run.Snooze("n", noon.Add(-time.Hour))},
		"zero snooze": {node.Snooze(time.Time{}), run.Permanent("n", failure(run.CodeError, "the node snoozed until the zero time: pass the instant at which it is to run again"))},
		"skip":        {node.Skip("nothing to do"), run.Skip("n", "nothing to do")},
		"bad skip":    {node.Skip("a\xffb"), run.Skip("n", "a\uFFFDb")},
		"permanent":   {node.Permanent(errPlain), run.Permanent("n", failure(run.CodeError, "plain"))},
		"retry after": {node.RetryAfter(errPlain, later), run.Retry("n", failure(run.CodeError, "plain"), later)},
		"details":     {node.WithDetails(errPlain, map[string]int{"code": 3}), run.Retry("n", details, time.Time{})},
		"permanent with details": {
			node.Permanent(node.WithDetails(errPlain, map[string]int{"code": 3})), run.Permanent("n", details),
		},
		"outer details count": {
			node.WithDetails(fmt.Errorf("%w", node.WithDetails(errPlain, 1)), map[string]int{"code": 3}), run.Retry("n", details, time.Time{}),
		},
		"details that are not JSON": {
			node.WithDetails(errPlain, func() {}),
			run.Retry("n", failure(run.CodeError, "plain (its details cannot be stored: belay: invalid value: at the value: a Go func() has no JSON form: leave it out or give it a MarshalJSON method)"), time.Time{}),
		},
		"too large": {
			fmt.Errorf("loading: %w", &value.LimitError{What: "x", Size: 2, Limit: 1}),
			run.Permanent("n", failure(run.CodeTooLarge, "loading: belay: value too large: x has 2 bytes, the limit is 1: keep large data elsewhere and pass a reference")),
		},

		"a failure outweighs an answer":    {errors.Join(node.Skip("r"), node.Permanent(errPlain)), run.Permanent("n", failure(run.CodeError, "belay: the node is skipped: r\nplain"))},
		"retry-after outweighs an answer":  {errors.Join(node.Snooze(later), node.RetryAfter(errPlain, later)), run.Retry("n", failure(run.CodeError, "belay: the node snoozes\nplain"), later)},
		"permanent outweighs retry-after":  {node.RetryAfter(node.Permanent(errPlain), later), run.Permanent("n", failure(run.CodeError, "plain"))},
		"an unmarked error does not count": {errors.Join(errOther, node.Snooze(later)), run.Snooze("n", later)},
		"ask outweighs snooze and skip":    {errors.Join(node.Skip("r"), node.Snooze(later), node.Ask(question)), asked},
		"the latest not-before":            {errors.Join(node.RetryAfter(errPlain, later), node.RetryAfter(errOther, noon)), run.Retry("n", failure(run.CodeError, "plain\nother"), later)},
		"two questions":                    {errors.Join(node.Ask(question), node.Ask(question)), run.Permanent("n", failure(run.CodeInvalidAsk, "the node asked two questions at once: ask one, and the next after its answer"))},
		"bad prompt":                       {node.Ask(node.Question{Prompt: "\xff"}), run.Permanent("n", failure(run.CodeInvalidAsk, "the question's prompt: belay: invalid value: at the value: the text is not valid UTF-8: encode other bytes, for instance as base64"))},
		"bad schema":                       {node.Ask(node.Question{Schema: value.Value("{")}), run.Permanent("n", failure(run.CodeInvalidAsk, "the question's schema: belay: invalid value: at the value: the JSON text ends too early"))},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := place(t, answering(func(context.Context) error { return tt.err }), "", nil).run(t, t.Context())
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("result\n%+v, want\n%+v", got, tt.want)
			}
		})
	}
}

func TestAnAnswerIsFoundHoweverItIsWrapped(t *testing.T) {
	later := noon.Add(time.Hour)
	answers := map[string]error{
		"ask": node.Ask(node.Question{ID: "q"}), "snooze": node.Snooze(later), "skip": node.Skip("r"),
		"permanent": node.Permanent(errPlain), "retry after": node.RetryAfter(errPlain, later),
	}
	wraps := map[string]func(error) error{
		"%w":          func(err error) error { return fmt.Errorf("outer: %w", err) },
		"%w %w":       func(err error) error { return fmt.Errorf("outer: %w, %w", errOther, err) },
		"join":        func(err error) error { return errors.Join(err, nil) },
		"join, other": func(err error) error { return errors.Join(errOther, err) },
		"deep": func(err error) error {
			return errors.Join(errOther, fmt.Errorf("a: %w", errors.Join(fmt.Errorf("b: %w", err), errOther)))
		},
		"details": func(err error) error { return node.WithDetails(err, 1) },
	}
	for name, answer := range answers {
		plain := place(t, answering(func(context.Context) error { return answer }), "", nil).run(t, t.Context())
		for how, wrap := range wraps {
			t.Run(name+" in "+how, func(t *testing.T) {
				got := place(t, answering(func(context.Context) error { return wrap(answer) }), "", nil).run(t, t.Context())
				if got.Kind() != plain.Kind() || !got.Until().Equal(plain.Until()) || got.Reason() != plain.Reason() || got.Question().ID != plain.Question().ID {
					t.Errorf("result %+v, want as %+v", got, plain)
				}
			})
		}
	}
}

func TestMarkingNoErrorIsNoError(t *testing.T) {
	for name, err := range map[string]error{
		"Permanent": node.Permanent(nil), "RetryAfter": node.RetryAfter(nil, noon), "WithDetails": node.WithDetails(nil, 1),
	} {
		if err != nil {
			t.Errorf("%s(nil) = %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"Permanent": node.Permanent(errPlain), "RetryAfter": node.RetryAfter(errPlain, noon), "WithDetails": node.WithDetails(errPlain, 1),
	} {
		if !errors.Is(err, errPlain) || err.Error() != "plain" {
			t.Errorf("%s(plain) = %v", name, err)
		}
	}
}

// Errors as they should not be.
type (
	nilError    struct{ text string }
	loopError   struct{}
	brokenError struct{}
	silentError struct{}
	shownValue  struct{ secret string }
	brokenJSON  struct{}
)

func (e *nilError) Error() string                 { return e.text }
func (e *nilError) Unwrap() error                 { return errors.New(e.text) }
func (e loopError) Error() string                 { return "loop" }
func (e loopError) Unwrap() error                 { return e }
func (e brokenError) Error() string               { panic("no text today") }
func (e silentError) Error() string               { return "" }
func (brokenJSON) MarshalJSON() ([]byte, error)   { panic("no JSON today") }
func (v shownValue) MarshalJSON() ([]byte, error) { return []byte(`"` + v.secret + `"`), nil }

func TestH29PanicsAndOddErrorsAreStorableFailures(t *testing.T) {
	var nothing *nilError
	var pointer *struct{ n int }
	loop := []any{nil}
	loop[0] = loop
	tests := map[string]struct {
		act     func() error
		code    string
		message string // part of it
	}{
		"panic with an error":       {func() error { panic(errPlain) }, run.CodePanic, "panic: plain"},
		"panic with a text":         {func() error { panic("oh") }, run.CodePanic, "panic: oh"},
		"panic with a number":       {func() error { panic(42) }, run.CodePanic, "panic: 42"},
		"panic with a struct":       {func() error { panic(shownValue{"secret"}) }, run.CodePanic, "panic: a value of type node_test.shownValue"},
		"panic with a loop":         {func() error { panic(loop) }, run.CodePanic, "panic: a value of type []interface {}"},
		"panic with nil":            {func() error { panic(nil) }, run.CodePanic, "panic called with nil argument"},
		"panic with a nil pointer":  {func() error { panic(nothing) }, run.CodePanic, "panic: <nil>"},
		"panic with bad UTF-8":      {func() error { panic("a\xffb") }, run.CodePanic, "panic: a\uFFFDb"},
		"panic with a broken error": {func() error { panic(brokenError{}) }, run.CodePanic, "no text today"},
		"panic with an answer":      {func() error { panic(node.Skip("r")) }, run.CodePanic, "panic: belay: the node is skipped: r"},
		"nil pointer":               {func() error { pointer.n++; return nil }, run.CodePanic, "nil pointer dereference"},
		"index":                     {func() error { return []error{}[len(tests0())] }, run.CodePanic, "index out of range"},
		//lint:ignore SA5000 the panic is what is tested
		"nil map":                    {func() error { var m map[int]int; m[1]++; return nil }, run.CodePanic, "assignment to entry in nil map"},
		"Goexit":                     {func() error { runtime.Goexit(); return nil }, run.CodePanic, "runtime.Goexit"},
		"Goexit under a panic":       {func() error { defer runtime.Goexit(); panic("oh") }, run.CodePanic, "runtime.Goexit"},
		"a long panic":               {func() error { panic(strings.Repeat("é", 1<<20)) }, run.CodePanic, "more bytes left out)"},
		"a question that panics":     {func() error { return node.Ask(node.Question{Prompt: brokenJSON{}}) }, run.CodePanic, "no JSON today"},
		"details that panic":         {func() error { return node.WithDetails(errPlain, brokenJSON{}) }, run.CodePanic, "no JSON today"},
		"bad UTF-8":                  {func() error { return errors.New("a\xff\xfeb") }, run.CodeError, "a\uFFFD\uFFFDb"},
		"NUL":                        {func() error { return errors.New("a\x00b") }, run.CodeError, "a\x00b"},
		"no text":                    {func() error { return silentError{} }, run.CodeError, "an error of type node_test.silentError without a text"},
		"a nil pointer as an error":  {func() error { return nothing }, run.CodePanic, "nil pointer dereference"},
		"an error that wraps itself": {func() error { return loopError{} }, run.CodeError, "loop"},
		"an error without a text":    {func() error { return brokenError{} }, run.CodeError, "no text today"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := place(t, answering(func(context.Context) error { return tt.act() }), "", nil).run(t, t.Context())
			f := mustFailure(t, r, run.ResultRetry)
			if f.Code != tt.code || !strings.Contains(f.Message, tt.message) || f.Node != "n" {
				t.Errorf("failure %+v does not say %q", f, tt.message)
			}
			if strings.Contains(f.Message, "secret") {
				t.Errorf("the failure shows the value: %s", f.Message)
			}
			if !utf8.ValidString(f.Message) || f.Message == "" || tt.code == run.CodePanic && len(f.Message) > 5<<10 {
				t.Errorf("the message of %d bytes is not fit to be kept", len(f.Message))
			}
			if f.Details != nil {
				if _, err := value.Parse(f.Details); err != nil || len(f.Details) > 64<<10 {
					t.Errorf("details of %d bytes: %v", len(f.Details), err)
				}
			}
		})
	}
}

func tests0() []int { return nil }

func TestH29NilResults(t *testing.T) {
	raw := func(update map[string]value.Value) node.Type {
		return node.Raw(graph.NodeType{Name: "t", Version: 1, OpenWrites: true}, func(node.Site) (node.Func, error) {
			return func(context.Context, *node.Call) (map[string]value.Value, error) { return update, nil }, nil
		})
	}
	if r := place(t, raw(nil), "", nil).run(t, t.Context()); r.Kind() != run.ResultCompleted || len(r.Update()) != 0 {
		t.Errorf("a nil update gives %+v", r)
	}
	f := mustFailure(t, place(t, raw(map[string]value.Value{"a": value.Null(), "b/c": nil}), "", nil).run(t, t.Context()), run.ResultPermanent)
	if f.Code != run.CodeInvalidUpdate || !strings.Contains(f.Message, "at /b~1c: the value is absent") {
		t.Errorf("failure %+v", f)
	}
}

func TestUpdatesOfRawNodesAreCanonicalized(t *testing.T) {
	tests := map[string]struct{ raw, want, refused string }{
		"space and order": {raw: ` {"b": 1.0, "a" : [1e2] }`, want: `{"a":[1e2],"b":1.0}`},
		"bad JSON":        {raw: `{"a":[1,}`, refused: "at /v/a/1"},
		"bad UTF-8":       {raw: "[\"\xff\"]", refused: "at /v/0"},
		"reserved name":   {raw: `{"$a":1}`, refused: "at /v/$a"},
		"empty":           {raw: ``, refused: "at /v: there is no JSON value"},
		"two values":      {raw: `1 2`, refused: "at /v"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			typ := node.Raw(graph.NodeType{Name: "t", Version: 1, OpenWrites: true}, func(node.Site) (node.Func, error) {
				return func(context.Context, *node.Call) (map[string]value.Value, error) {
					return map[string]value.Value{"v": value.Value(tt.raw)}, nil
				}, nil
			})
			r := place(t, typ, "", nil).run(t, t.Context())
			if tt.refused == "" {
				if got := string(r.Update()["v"]); got != tt.want {
					t.Errorf("value %s, want %s", got, tt.want)
				}
				return
			}
			if f := mustFailure(t, r, run.ResultPermanent); f.Code != run.CodeInvalidUpdate || !strings.Contains(f.Message, tt.refused) {
				t.Errorf("failure %+v does not say %q", f, tt.refused)
			}
		})
	}
}

func TestAnUpdateBesideAnErrorIsIgnored(t *testing.T) {
	typ := node.Of("t", 1, func(context.Context, struct{}) (struct{ A int }, error) { return struct{ A int }{1}, node.Skip("r") })
	if r := place(t, typ, "", nil).run(t, t.Context()); r.Kind() != run.ResultSkipped || r.Update() != nil {
		t.Errorf("result %+v", r)
	}
}

func TestH29ResultsAfterTheDeadline(t *testing.T) {
	acts := map[string]struct {
		act     func() error
		message string
	}{
		"success":   {func() error { return nil }, "give the node a longer timeout"},
		"error":     {func() error { return errPlain }, "ran into its deadline: plain"},
		"permanent": {func() error { return node.Permanent(errPlain) }, "ran into its deadline: plain"},
		"snooze":    {func() error { return node.Snooze(noon) }, "give the node a longer timeout"},
		"panic":     {func() error { panic("oh") }, "ran into its deadline: panic: oh"},
	}
	contexts := map[string]func() (context.Context, context.CancelFunc){
		"timeout": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), time.Second)
		},
		"timeout cause": func() (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(context.Background(), time.Second, errOther)
		},
		"cancel cause": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(context.Background())
			timer := time.AfterFunc(time.Second, func() { cancel(fmt.Errorf("timeout: %w", context.DeadlineExceeded)) })
			return ctx, func() { timer.Stop(); cancel(nil) }
		},
	}
	for name, tt := range acts {
		for how, open := range contexts {
			t.Run(name+" after "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := open()
					defer cancel()
					r := place(t, answering(func(ctx context.Context) error { <-ctx.Done(); return tt.act() }), "", nil).run(t, ctx)
					if f := mustFailure(t, r, run.ResultRetry); f.Code != run.CodeTimeout || !strings.Contains(f.Message, tt.message) {
						t.Errorf("failure %+v does not say %q", f, tt.message)
					}
				})
			})
		}
	}
}

func TestANodeNeverBeginsOnceItsContextHasEnded(t *testing.T) {
	called := false
	s := place(t, answering(func(context.Context) error { called = true; return nil }), "", nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errOther)
	var cut *node.CutShortError
	if _, err := s.Run(ctx, &s.call); !errors.As(err, &cut) || !errors.Is(err, errOther) {
		t.Errorf("after a cancel: %v", err)
	}
	late, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	if f := mustFailure(t, s.run(t, late), run.ResultRetry); f.Code != run.CodeTimeout {
		t.Errorf("after the deadline: %+v", f)
	}
	if called {
		t.Error("the function was called")
	}
}

func TestAnAttemptCutShortHasNoFailure(t *testing.T) {
	errLost := errors.New("claim lost")
	tests := map[string]struct {
		act  func(context.Context) error
		want run.ResultKind // 0: cut short
	}{
		"success":   {func(context.Context) error { return nil }, run.ResultCompleted},
		"snooze":    {func(context.Context) error { return node.Snooze(noon) }, run.ResultSnoozed},
		"ask":       {func(context.Context) error { return node.Ask(node.Question{}) }, run.ResultAsked},
		"skip":      {func(context.Context) error { return node.Skip("r") }, run.ResultSkipped},
		"error":     {func(ctx context.Context) error { return ctx.Err() }, 0},
		"permanent": {func(ctx context.Context) error { return node.Permanent(ctx.Err()) }, 0},
		"panic":     {func(ctx context.Context) error { panic(ctx.Err()) }, 0},
		"joined":    {func(ctx context.Context) error { return errors.Join(node.Skip("r"), node.Permanent(ctx.Err())) }, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			s := place(t, answering(func(ctx context.Context) error {
				cancel(errLost)
				return tt.act(ctx)
			}), "", nil)
			r, err := s.Run(ctx, &s.call)
			if tt.want != 0 {
				if err != nil || r.Kind() != tt.want {
					t.Errorf("result %v, error %v, want %v", r.Kind(), err, tt.want)
				}
				return
			}
			var short *node.CutShortError
			if !errors.As(err, &short) || !errors.Is(err, errLost) || short.Node != "n" || r.Kind() != 0 {
				t.Errorf("result %v, error %v, want *CutShortError", r.Kind(), err)
			}
		})
	}
}

func TestANodeIsToldItsCall(t *testing.T) {
	typ := node.Of("t", 1, func(ctx context.Context, _ struct{}) (struct{}, error) {
		call, ok := node.FromContext(ctx)
		if !ok || call.Run != "r" || call.Node != "n" || call.Task != "r:1:n" || call.AttemptID != "r:1:n:1" || call.Attempt != 1 ||
			!call.PlannedAt.Equal(noon) || !call.Now().Equal(noon) {
			t.Errorf("call %+v, %v", call, ok)
		}
		if key := node.IdempotencyKey(ctx); key != "r:1:n" {
			t.Errorf("key %q", key)
		}
		return struct{}{}, nil
	})
	place(t, typ, "", nil).run(t, t.Context())

	if call, ok := node.FromContext(t.Context()); ok || call != nil {
		t.Errorf("outside a node: %v", call)
	}
	if key := node.IdempotencyKey(t.Context()); key != "" {
		t.Errorf("outside a node: %q", key)
	}
	if _, ok, err := node.Answered[bool](t.Context(), ""); ok || err != nil {
		t.Errorf("outside a node: %v, %v", ok, err)
	}
}

func TestACallWithoutAClockHasTheSystems(t *testing.T) {
	s := place(t, answering(func(ctx context.Context) error {
		if call, _ := node.FromContext(ctx); time.Since(call.Now()) > time.Minute {
			t.Errorf("now is %v", call.Now())
		}
		return nil
	}), "", nil)
	s.call.Now = nil
	s.run(t, t.Context())
	if s.call.Now != nil {
		t.Error("the caller's call was changed")
	}
}

func TestNowIsTheClockOfTheCall(t *testing.T) {
	noon := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	var got time.Time
	s := place(t, answering(func(ctx context.Context) error { got = node.Now(ctx); return nil }), "", nil)
	s.call.Now = func() time.Time { return noon }
	s.run(t, t.Context())
	if !got.Equal(noon) {
		t.Errorf("within a node it is %v, want %v", got, noon)
	}
	if d := time.Since(node.Now(t.Context())); d < 0 || d > time.Minute {
		t.Errorf("outside a node it is %v ago", d)
	}
}

func TestAnsweredIsTheNewestAnswer(t *testing.T) {
	answers := []run.Answer{
		{Interrupt: "a", Value: value.Value("1"), ResolvedAt: noon},
		{Interrupt: "b", Value: value.Value("9007199254740993"), ResolvedAt: noon.Add(1)},
		{Interrupt: "a", Value: value.Value(`"x"`), ResolvedAt: noon.Add(2)},
	}
	tests := map[string]struct {
		answers []run.Answer
		id      string
		want    int64
		ok      bool
		bad     bool
	}{
		"none":        {nil, "", 0, false, false},
		"of an id":    {answers, "b", 9007199254740993, true, false},
		"of another":  {answers, "c", 0, false, false},
		"any":         {answers[:2], "", 9007199254740993, true, false},
		"of a twice":  {answers[:2], "a", 1, true, false},
		"not fitting": {answers, "a", 0, true, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := place(t, answering(func(ctx context.Context) error {
				got, ok, err := node.Answered[int64](ctx, tt.id)
				if got != tt.want || ok != tt.ok || (err != nil) != tt.bad {
					t.Errorf("got %d, %v, %v", got, ok, err)
				}
				return err
			}), "", nil)
			s.call.Answers = tt.answers
			r := s.run(t, t.Context())
			if tt.bad {
				if f := mustFailure(t, r, run.ResultPermanent); !strings.Contains(f.Message, "the answer to a: belay: invalid value") {
					t.Errorf("failure %+v", f)
				}
			}
		})
	}
}

func TestBadCallsOfRun(t *testing.T) {
	s := place(t, answering(func(context.Context) error { return nil }), "", nil)
	if _, err := s.Run(t.Context(), nil); !errors.Is(err, node.ErrNilArgument) {
		t.Errorf("nil call: %v", err)
	}
	r, err := s.Run(t.Context(), &node.Call{Node: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if f := mustFailure(t, r, run.ResultPermanent); !strings.Contains(f.Message, `has no node "other"`) {
		t.Errorf("failure %+v", f)
	}
}
