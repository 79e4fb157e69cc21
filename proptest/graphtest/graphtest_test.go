package graphtest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/proptest/graphtest"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse(t testing.TB, text string) *graph.Document {
	t.Helper()
	doc, err := graph.ParseYAML([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// order asks before it charges, and ships to two places at once.
const order = `
id: order
inputs: {amount: {schema: {type: integer}, required: true}}
fields: {receipt: {schema: {type: string}}, label: {schema: {type: string}}, note: {schema: {type: string}}, tries: {schema: {type: integer}, default: 0, reducer: sum}}
nodes:
  approve: {use: approve}
  charge: {use: charge, timeout: 30s, retry: {max_attempts: 3, backoff: {initial: 10s}}}
  ship: {use: ship, retry: {max_attempts: 2}}
  tell: {use: tell}
edges:
  in: {from: $start, to: approve}
  approved: {from: approve, to: charge}
  ships: {from: charge, to: ship}
  tells: {from: charge, to: tell}
  out: {from: [ship, tell], to: $finish}
outputs: {receipt: {from: receipt}, label: {from: label}}
`

type none struct{}

type (
	charge struct {
		Amount int `json:"amount"`
	}
	receipt struct {
		Receipt string `json:"receipt"`
	}
	label struct {
		Label string `json:"label"`
	}
	note struct {
		Note string `json:"note"`
	}
)

func approve(ctx context.Context, _ none) (none, error) {
	_, ok, err := node.Answered[bool](ctx, "")
	if err != nil || ok {
		return none{}, err
	}
	call, _ := node.FromContext(ctx)
	return none{}, node.Ask(node.Question{
		Prompt: "ship it?", Schema: value.Value(`{"type":"boolean"}`), Deadline: call.PlannedAt.Add(24 * time.Hour), Default: true,
	})
}

// nodes are those of order, with the given charge.
func nodes(pay func(ctx context.Context, in charge) (receipt, error)) *node.Registry {
	return node.NewRegistry().Add(
		node.Of("approve", 1, approve),
		node.Of("charge", 1, pay),
		node.Of("ship", 1, func(ctx context.Context, _ none) (label, error) {
			key := node.IdempotencyKey(ctx)
			graphtest.Effect(ctx, key, "ship")
			return label{"label " + key}, nil
		}),
		node.Of("tell", 1, func(ctx context.Context, _ none) (note, error) {
			if call, _ := node.FromContext(ctx); call.Attempt == 1 && call.Now().Sub(call.PlannedAt) < time.Minute {
				return note{}, node.Snooze(call.PlannedAt.Add(time.Minute))
			}
			return note{"told"}, nil
		}),
	)
}

func TestAGraphThatKeepsToTheRulesPasses(t *testing.T) {
	good := nodes(func(ctx context.Context, in charge) (receipt, error) {
		key := node.IdempotencyKey(ctx)
		graphtest.Effect(ctx, key, in.Amount)
		return receipt{"for " + key}, nil
	})
	graphtest.Check(t, parse(t, order), good, graphtest.EffectsOnce, graphtest.Finishes, graphtest.OutputsFit,
		graphtest.ReadsKey("charge", "ship"), graphtest.Input(map[string]int{"amount": 42}))
}

const loop = `
id: loop
fields: {n: {schema: {type: integer, maximum: 3}, default: 0}}
nodes: {count: {use: count}}
edges: {in: {from: $start, to: count}, again: {from: count, to: count, when: %s}, out: {from: count, to: $finish, when: %s}}
outputs: {n: {from: n}}
`

func counter(f func(ctx context.Context, n int) (int, error)) *node.Registry {
	type n struct {
		N int `json:"n"`
	}
	return node.NewRegistry().Add(node.Of("count", 1, func(ctx context.Context, in n) (n, error) {
		out, err := f(ctx, in.N)
		return n{out}, err
	}))
}

// TestBadGraphsAreFound plants one fault each.
func TestBadGraphsAreFound(t *testing.T) {
	files := flag.Lookup("rapid.nofailfile").Value
	before := files.String()
	if err := files.Set("true"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = files.Set(before) }()
	charges := func(key func(ctx context.Context, c *node.Call) string, what func(c *node.Call) any) *node.Registry {
		return nodes(func(ctx context.Context, in charge) (receipt, error) {
			call, _ := node.FromContext(ctx)
			graphtest.Effect(ctx, key(ctx, call), what(call))
			return receipt{"r"}, nil
		})
	}
	keyed := func(ctx context.Context, _ *node.Call) string { return node.IdempotencyKey(ctx) }
	amount := func(*node.Call) any { return 42 }
	input := graphtest.Input(map[string]int{"amount": 42})
	counts := func(again, out string) *graph.Document { return parse(t, fmt.Sprintf(loop, again, out)) }

	for _, c := range []struct {
		name  string
		doc   *graph.Document
		nodes *node.Registry
		holds []graphtest.Property
		says  string
	}{
		{
			"an effect without a key", parse(t, order), charges(func(context.Context, *node.Call) string { return "" }, amount),
			[]graphtest.Property{graphtest.EffectsOnce, input},
			"without a key",
		},
		{
			"a key of its own for every attempt", parse(t, order), charges(func(_ context.Context, c *node.Call) string { return c.AttemptID }, amount),
			[]graphtest.Property{graphtest.EffectsOnce, input},
			"under the keys",
		},
		{
			"an effect that is not the same the second time", parse(t, order), charges(keyed, func(c *node.Call) any { return c.Now() }),
			[]graphtest.Property{graphtest.EffectsOnce, input},
			"must be the same in every attempt",
		},
		{
			"one key for every round", counts("state.n < 3", "state.n >= 3"), counter(func(ctx context.Context, n int) (int, error) {
				call, _ := node.FromContext(ctx)
				graphtest.Effect(ctx, call.Run, "round")
				return n + 1, nil
			}),
			[]graphtest.Property{graphtest.EffectsOnce},
			"used one key",
		},
		{
			"a key that nobody reads", parse(t, order), charges(func(_ context.Context, c *node.Call) string { return c.IdempotencyKey }, amount),
			[]graphtest.Property{graphtest.ReadsKey("charge"), input},
			"did not read its idempotency key",
		},
		{
			"a cycle without an end", counts("state.n >= 0", "state.n < 0"), counter(func(_ context.Context, n int) (int, error) { return n, nil }),
			[]graphtest.Property{graphtest.Finishes, graphtest.MaxCommits(50)},
			"has not finished",
		},
		{
			"a question that nothing answers", counts("state.n < 0", "state.n >= 0"), counter(func(ctx context.Context, n int) (int, error) {
				if _, ok, err := node.Answered[string](ctx, ""); ok || err != nil {
					return n, err
				}
				return 0, node.Ask(node.Question{Schema: value.Value(`{"type":"string","minLength":40}`)})
			}),
			[]graphtest.Property{graphtest.Finishes},
			"graphtest.Answers",
		},
		{
			"an output that breaks its schema", counts("state.n < 3", "state.n >= 3"), counter(func(_ context.Context, n int) (int, error) { return n*2 + 2, nil }),
			[]graphtest.Property{graphtest.OutputsFit},
			"invalid_update",
		},
		{
			"a fault that only a retry shows", parse(t, order), nodes(func(ctx context.Context, in charge) (receipt, error) {
				call, _ := node.FromContext(ctx)
				if call.Attempt > 1 {
					return receipt{}, node.Ask(node.Question{ID: "same", Schema: value.Value(`{"type":7}`)})
				}
				return receipt{"r"}, nil
			}),
			[]graphtest.Property{graphtest.OutputsFit, input},
			"invalid_interrupt",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var text strings.Builder
			say := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
			if proptest.Attempt("bad", say, func(t proptest.T) { graphtest.Check(t, c.doc, c.nodes, c.holds...) }) {
				t.Fatal("it is not found")
			}
			if !strings.Contains(text.String(), c.says) || !strings.Contains(text.String(), "what happened") {
				t.Errorf("it does not say %q:\n%s", c.says, text.String())
			}
		})
	}
}

func TestAnswersAreTheUsersWhenGiven(t *testing.T) {
	given := 0
	doc := parse(t, fmt.Sprintf(loop, "state.n < 0", "state.n >= 0"))
	asks := counter(func(ctx context.Context, n int) (int, error) {
		answer, ok, err := node.Answered[string](ctx, "")
		switch {
		case err != nil:
			return 0, err
		case ok && answer != "a long enough one":
			return 0, errors.New("another answer")
		case ok:
			return n, nil
		}
		return 0, node.Ask(node.Question{Schema: value.Value(`{"type":"string","minLength":10}`)})
	})
	graphtest.Check(t, doc, asks, graphtest.Finishes, graphtest.Answers(func(run.Interrupt) any {
		given++
		return "a long enough one"
	}))
	if given == 0 {
		t.Error("nobody was asked")
	}
}
