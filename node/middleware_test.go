package node_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// wrapped runs one attempt of a node, through middleware.
func wrapped(t *testing.T, fn func(context.Context) (string, error), middleware ...node.Middleware) run.Result {
	t.Helper()
	type out struct {
		Text string `json:"text"`
	}
	types := node.NewRegistry().Add(node.Of("work", 1, func(ctx context.Context, _ struct{}) (out, error) {
		text, err := fn(ctx)
		return out{text}, err
	}))
	p, err := types.Prepare(publish(t, oneNode("work", 1, "", nil, []string{"text"}), types), 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Wrap(middleware...).Run(t.Context(), &node.Call{Node: "n", Use: "work", Writes: []string{"text"}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func fine(context.Context) (string, error) { return "done", nil }

func TestMiddlewareIsCalledInOrderAndTheFirstIsOutermost(t *testing.T) {
	var trail []string
	named := func(name string) node.Middleware {
		return func(next node.Func) node.Func {
			return func(ctx context.Context, call *node.Call) (map[string]value.Value, error) {
				trail = append(trail, name+" before")
				defer func() { trail = append(trail, name+" after") }()
				return next(ctx, call)
			}
		}
	}
	r := wrapped(t, func(ctx context.Context) (string, error) {
		trail = append(trail, "node")
		return fine(ctx)
	}, named("a"), node.Chain(named("b"), named("c")), node.Chain())
	if r.Kind() != run.ResultCompleted || string(r.Update()["text"]) != `"done"` {
		t.Fatalf("the attempt came to %v %s", r.Kind(), r.Update())
	}
	if got := strings.Join(trail, ", "); got != "a before, b before, c before, node, c after, b after, a after" {
		t.Errorf("the order is %s", got)
	}
}

type middlewareKey struct{}

func TestMiddlewareHandsOnAContextAndChangesTheAnswer(t *testing.T) {
	r := wrapped(t, func(ctx context.Context) (string, error) {
		call, ok := node.FromContext(ctx)
		return fmt.Sprint(ctx.Value(middlewareKey{}), " ", ok && call.Use == "work"), nil
	}, func(next node.Func) node.Func {
		return func(ctx context.Context, call *node.Call) (map[string]value.Value, error) {
			update, err := next(context.WithValue(ctx, middlewareKey{}, "given"), call)
			if string(update["text"]) != `"given true"` {
				return nil, fmt.Errorf("the node answered %s", update["text"])
			}
			return map[string]value.Value{"text": value.Value(` "changed" `)}, err // not canonical
		}
	})
	if r.Kind() != run.ResultCompleted || string(r.Update()["text"]) != `"changed"` {
		t.Errorf("the attempt came to %v %s", r.Kind(), r.Update())
	}
}

// What goes wrong in middleware is a failure of the attempt, and never the end of the process.
func TestTroubleOfMiddlewareIsAFailureOfTheAttempt(t *testing.T) {
	never := func(context.Context) (string, error) { return "", errors.New("the node was called") }
	answer := func(do func() error) node.Middleware {
		return func(node.Func) node.Func {
			return func(context.Context, *node.Call) (map[string]value.Value, error) { return nil, do() }
		}
	}
	for _, tt := range []struct {
		name       string
		middleware node.Middleware
		kind       run.ResultKind
		code, says string
	}{
		{"it refuses", answer(func() error { return node.Permanent(errors.New("not allowed")) }), run.ResultPermanent, run.CodeError, "not allowed"},
		{"it panics", answer(func() error { panic("out of tokens") }), run.ResultRetry, run.CodePanic, "out of tokens"},
		{"it panics while it wraps", func(node.Func) node.Func { panic("no rates") }, run.ResultRetry, run.CodePanic, "no rates"},
		{"it wraps in nothing", func(node.Func) node.Func { return nil }, run.ResultPermanent, run.CodeError, "return next"},
		{"it is nil", nil, run.ResultPermanent, run.CodeError, "leave it out"},
		{"it answers what cannot be stored", func(node.Func) node.Func {
			return func(context.Context, *node.Call) (map[string]value.Value, error) {
				return map[string]value.Value{"text": value.Value(`{`)}, nil
			}
		}, run.ResultPermanent, run.CodeInvalidUpdate, "/text"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := wrapped(t, never, tt.middleware)
			f, failed := r.Failure()
			if r.Kind() != tt.kind || !failed || f.Code != tt.code || !strings.Contains(f.Message, tt.says) {
				t.Errorf("the attempt came to %v, %+v; want %v, %s and %q", r.Kind(), f, tt.kind, tt.code, tt.says)
			}
		})
	}
}

func TestOutcomeTellsAnswersFromFailures(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want run.ResultKind
	}{
		{nil, run.ResultCompleted},
		{errors.New("away"), run.ResultRetry},
		{node.Permanent(errors.New("wrong")), run.ResultPermanent},
		{fmt.Errorf("wrapped: %w", node.Skip("nothing to do")), run.ResultSkipped},
		{node.Ask(node.Question{Prompt: "well?"}), run.ResultAsked},
		{node.Snooze(time.Unix(1, 0)), run.ResultSnoozed},
		{errors.Join(node.Skip("x"), node.Permanent(errors.New("y"))), run.ResultPermanent},
	} {
		if got := node.Outcome(tt.err); got != tt.want {
			t.Errorf("%v comes to %v, want %v", tt.err, got, tt.want)
		}
	}
}
