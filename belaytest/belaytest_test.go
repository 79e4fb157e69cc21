package belaytest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/belaytest"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const order = `
id: order
inputs: {amount: {schema: {type: integer}, required: true}}
fields: {receipt: {schema: {type: string}}, approved: {schema: {type: boolean}}}
nodes:
  charge: {use: charge, retry: {max_attempts: 3, backoff: {initial: 1h}}}
  approve: {use: approve}
  ship: {use: ship}
edges:
  begin: {from: $start, to: charge}
  ask:   {from: charge, to: approve}
  go:    {from: approve, to: ship}
  end:   {from: ship, to: $finish}
outputs: {receipt: {from: receipt}, approved: {from: approved}}
`

type (
	none    struct{}
	payment struct {
		Amount int `json:"amount"`
	}
	receipt struct {
		Receipt string `json:"receipt"`
	}
	approval struct {
		Approved bool `json:"approved"`
	}
)

// orderNodes charge at the second attempt, ask, and ship a day after that was planned.
func orderNodes() *node.Registry {
	return node.NewRegistry().Add(
		node.Of("charge", 1, func(ctx context.Context, p payment) (receipt, error) {
			if call, _ := node.FromContext(ctx); call.Attempt == 1 {
				return receipt{}, errors.New("away")
			}
			return receipt{fmt.Sprint("paid ", p.Amount)}, nil
		}),
		node.Of("approve", 1, func(ctx context.Context, _ none) (approval, error) {
			approved, ok, err := node.Answered[bool](ctx, "")
			if err != nil || ok {
				return approval{approved}, err
			}
			return approval{}, node.Ask(node.Question{Prompt: "ship it?"})
		}),
		node.Of("ship", 1, func(ctx context.Context, _ none) (none, error) {
			call, _ := node.FromContext(ctx)
			if until := call.PlannedAt.Add(24 * time.Hour); node.Now(ctx).Before(until) {
				return none{}, node.Snooze(until)
			}
			return none{}, nil
		}),
	)
}

func TestARunGoesThroughRetriesQuestionsAndSleepsAtOnce(t *testing.T) {
	e := belaytest.New(t, belay.Config{Nodes: orderNodes()})
	ref := e.MustPublishYAML(order)
	r := e.MustStart(ref, payment{7})
	e.WantState(r.ID, "receipt", nil)

	e.Quiet()
	e.WantStatus(r.ID, run.Running) // the charge waits for its retry
	e.Advance(44 * time.Minute)     // a backoff is shortened by a quarter at most
	e.WantStatus(r.ID, run.Running)
	e.Advance(time.Hour)
	e.WantAsked(r.ID, "ship it?")
	e.WantState(r.ID, "receipt", "paid 7")

	e.MustResolve(r.ID, true)
	asked := e.Clock.Now()
	e.Rest(r.ID)
	if passed := e.Clock.Now().Sub(asked); passed != 24*time.Hour {
		t.Errorf("%v passed, want a day", passed)
	}
	e.WantDone(r.ID, map[string]any{"receipt": "paid 7", "approved": true})
	e.WantStory(r.ID,
		"run_initialized", "node_failed charge: node_error", "node_completed charge",
		"interrupt_requested approve", "interrupt_resolved approve", "node_completed approve",
		"node_snoozed ship", "node_completed ship", "run_completed")
}

func TestAdvanceMeetsEveryTimerAtItsOwnInstant(t *testing.T) {
	var at []time.Duration
	e := belaytest.New(t, belay.Config{Nodes: node.NewRegistry().Add(node.Of("tick", 1, func(ctx context.Context, _ none) (none, error) {
		at = append(at, node.Now(ctx).Sub(belaytest.Epoch))
		if len(at) == 4 {
			return none{}, nil
		}
		return none{}, node.Snooze(node.Now(ctx).Add(10 * time.Minute))
	}))})
	ref := e.MustPublishYAML("{id: g, nodes: {n: {use: tick}}, edges: {in: {from: $start, to: n}, out: {from: n, to: $finish}}}")
	later, err := e.Start(t.Context(), ref, nil, belay.StartOptions{At: belaytest.Epoch.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	e.Advance(85 * time.Minute)
	if fmt.Sprint(at) != "[1h0m0s 1h10m0s 1h20m0s]" || !e.Clock.Now().Equal(belaytest.Epoch.Add(85*time.Minute)) {
		t.Errorf("the node ran at %v, and it is %v", at, e.Clock.Now())
	}
	e.Rest(later.ID)
	e.WantStatus(later.ID, run.Done)
}

func TestRestWaitsForTheEndOfAClaimThatNobodyKeeps(t *testing.T) {
	e := belaytest.New(t, belay.Config{Nodes: orderNodes(), TTL: 5 * time.Minute})
	r := e.MustStart(e.MustPublishYAML(order), payment{1})
	belaytest.Crash(t, e.Store, 1)
	e.Rest(r.ID)
	e.WantAsked(r.ID, "ship it?")
}

func TestRunsOfTenantsAreReadAndAnsweredToo(t *testing.T) {
	e := belaytest.New(t, belay.Config{Nodes: orderNodes()})
	acme := e.For("acme")
	doc := e.MustPublishYAML(order)
	if _, err := acme.Start(t.Context(), doc, payment{1}, belay.StartOptions{}); !errors.Is(err, belay.ErrNotFound) {
		t.Fatalf("another owner's graph: %v", err)
	}
	graph, err := belay.ReadGraph("testdata/order.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := acme.Publish(t.Context(), graph)
	if err != nil {
		t.Fatal(err)
	}
	r, err := acme.Start(t.Context(), ref, payment{1}, belay.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e.Rest(r.ID)
	e.MustResolve(r.ID, false)
	e.Rest(r.ID)
	e.WantDone(r.ID, approval{false})
	if ref := e.MustPublishFile("testdata/order.yaml"); ref.ID != "approval" {
		t.Errorf("the file's graph is %v", ref)
	}
}

// told is a test that is told of failures instead of failing.
type told struct {
	testing.TB
	text   strings.Builder
	failed bool
}

func (t *told) Helper() {}

func (t *told) Errorf(format string, args ...any) {
	t.failed = true
	fmt.Fprintf(&t.text, format+"\n", args...)
}

type stopped struct{}

func (t *told) Fatalf(format string, args ...any) { t.Errorf(format, args...); panic(stopped{}) }

func (t *told) Fatal(args ...any) { t.Errorf("%s", fmt.Sprint(args...)); panic(stopped{}) }

// during is what a test is told that does this.
func during(t *testing.T, do func(t testing.TB)) string {
	t.Helper()
	fake := &told{TB: t}
	func() {
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(stopped); !ok {
					panic(r)
				}
			}
		}()
		do(fake)
	}()
	if !fake.failed {
		t.Error("the test did not fail")
	}
	return fake.text.String()
}

// Every assertion can fail, and says what a reader needs to know.
func TestFailuresSayWhatIsDifferentAndWhy(t *testing.T) {
	const loop = "{id: loop, nodes: {n: {use: snooze}}, edges: {in: {from: $start, to: n}, out: {from: n, to: $finish}}}"
	engine := func(t testing.TB) *belaytest.Engine {
		types := orderNodes().Add(node.Of("snooze", 1, func(ctx context.Context, _ none) (none, error) {
			return none{}, node.Snooze(node.Now(ctx).Add(time.Microsecond))
		}))
		return belaytest.New(t, belay.Config{Nodes: types})
	}
	done := func(e *belaytest.Engine) string {
		r := e.MustStart(e.MustPublishYAML(order), payment{7})
		e.Rest(r.ID)
		e.MustResolve(r.ID, true)
		e.Rest(r.ID)
		return r.ID
	}
	failed := func(e *belaytest.Engine) string {
		r := e.MustStart(e.MustPublishYAML(`
id: broken
inputs: {amount: {schema: {type: integer}, required: true}}
fields: {receipt: {schema: {type: string}}}
nodes: {charge: {use: charge}}
edges: {in: {from: $start, to: charge}, out: {from: charge, to: $finish}}
`), payment{7})
		e.Rest(r.ID)
		return r.ID
	}
	for _, tt := range []struct {
		name string
		do   func(t testing.TB, e *belaytest.Engine)
		says []string
	}{
		{"an output", func(_ testing.TB, e *belaytest.Engine) {
			e.WantDone(done(e), map[string]any{"receipt": "paid 8", "approved": true})
		}, []string{"the output of run", `-`, `"paid 8"`, `+`, `"paid 7"`}},
		{"a failure", func(_ testing.TB, e *belaytest.Engine) { e.WantDone(failed(e), none{}) }, []string{"is failed, want done", "in node charge: node_error: away", "its story: run_initialized, node_failed charge: node_error"}},
		{"another failure", func(_ testing.TB, e *belaytest.Engine) { e.WantFailed(failed(e), run.CodePanic) }, []string{"code node_error, want node_panic"}},
		{"no failure", func(_ testing.TB, e *belaytest.Engine) { e.WantFailed(done(e), run.CodePanic) }, []string{"is done, want failed"}},
		{"no question", func(_ testing.TB, e *belaytest.Engine) { e.WantAsked(done(e), "really?") }, []string{"is done and asks 0 questions, want 1"}},
		{"another question", func(_ testing.TB, e *belaytest.Engine) {
			r := e.MustStart(e.MustPublishYAML(order), payment{7})
			e.Rest(r.ID)
			e.WantAsked(r.ID, "really?")
		}, []string{"question", `"really?"`, `"ship it?"`}},
		{"a state", func(_ testing.TB, e *belaytest.Engine) { e.WantState(done(e), "amount", 8) }, []string{"amount of run", `"8"`, `"7"`}},
		{"a state without a value", func(_ testing.TB, e *belaytest.Engine) { e.WantState(failed(e), "receipt", "paid") }, []string{"no value", `"paid"`}},
		{"a story", func(_ testing.TB, e *belaytest.Engine) { e.WantStory(failed(e), "run_initialized") }, []string{"-want +got", "node_failed charge: node_error"}},
		{"runs", func(t testing.TB, e *belaytest.Engine) { done(e); belaytest.WantRuns(t, e.Store, 0) }, []string{"there are 1 runs, want 0", "(order, done)"}},
		{"nothing to answer", func(_ testing.TB, e *belaytest.Engine) { e.MustResolve(done(e), true) }, []string{"is done and asks 0 questions"}},
		{"an answer that does not fit", func(_ testing.TB, e *belaytest.Engine) {
			r := e.MustStart(e.MustPublishYAML(order), payment{7})
			e.Rest(r.ID)
			e.MustResolve(r.ID, func() {})
		}, []string{"resolving"}},
		{"an unknown run", func(_ testing.TB, e *belaytest.Engine) { e.MustInspect("none") }, []string{"run none"}},
		{"the story of an unknown run", func(_ testing.TB, e *belaytest.Engine) { e.Story("none") }, []string{"events of run none"}},
		{"a start that is refused", func(_ testing.TB, e *belaytest.Engine) { e.MustStart(e.MustPublishYAML(order), none{}) }, []string{"starting", "/amount"}},
		{"a graph that is none", func(_ testing.TB, e *belaytest.Engine) { e.MustPublishYAML("nodes: 7") }, []string{"/nodes"}},
		{"a graph without its nodes", func(_ testing.TB, e *belaytest.Engine) {
			e.MustPublishYAML("{id: g, nodes: {n: {use: none}}, edges: {in: {from: $start, to: n}}}")
		}, []string{"publishing", "none"}},
		{"no file", func(_ testing.TB, e *belaytest.Engine) { e.MustPublishFile("none.yaml") }, []string{"none.yaml"}},
		{"a configuration", func(t testing.TB, _ *belaytest.Engine) { belaytest.New(t, belay.Config{}) }, []string{"Nodes is nil"}},
		{"no rest", func(_ testing.TB, e *belaytest.Engine) {
			e.LimitWakes(100)
			e.Rest(e.MustStart(e.MustPublishYAML(loop), nil).ID)
		}, []string{"came to no rest in 100 wakes"}},
		{"a loop in time", func(_ testing.TB, e *belaytest.Engine) {
			e.LimitWakes(100)
			e.MustStart(e.MustPublishYAML(loop), nil)
			e.Advance(time.Hour)
		}, []string{"100 timers went off", "a loop"}},
		{"a poisoned run", func(t testing.TB, _ *belaytest.Engine) {
			e := belaytest.New(t, belay.Config{Nodes: orderNodes(), MaxAttempts: 1})
			r := e.MustStart(e.MustPublishYAML(order), payment{7})
			belaytest.Crash(t, e.Store, 1)
			e.Rest(r.ID)
			e.WantStatus(r.ID, run.Done)
		}, []string{"is running, want done", "poisoned: max_claim_attempts_exceeded"}},
		{"nothing to crash", func(t testing.TB, e *belaytest.Engine) { belaytest.Crash(t, e.Store, 1) }, []string{"0 runs are due"}},
		{"the system's clock", func(t testing.TB, _ *belaytest.Engine) {
			belaytest.New(t, belay.Config{Nodes: orderNodes(), Clock: lifecycle.SystemClock()}).Advance(time.Hour)
		}, []string{"testing/synctest"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := during(t, func(fake testing.TB) { tt.do(fake, engine(fake)) })
			for _, part := range tt.says {
				if !strings.Contains(text, part) {
					t.Errorf("the failure does not say %q:\n%s", part, text)
				}
			}
		})
	}
}
