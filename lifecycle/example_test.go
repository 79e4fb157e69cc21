package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// order is the graph of the examples: it charges, and asks before it does when the amount is high.
const order = `
id: order
inputs: {amount: {schema: {type: integer}, required: true}}
fields: {receipt: {schema: {type: string}}}
nodes: {charge: {use: charge}}
edges: {begin: {from: $start, to: charge}, end: {from: charge, to: $finish}}
outputs: {receipt: {from: receipt}}
`

type (
	payment struct {
		Amount int `json:"amount"`
	}
	receipt struct {
		Receipt string `json:"receipt"`
	}
)

var charge = node.Of("charge", 1, func(ctx context.Context, p payment) (receipt, error) {
	approved, answered, err := node.Answered[bool](ctx, "")
	switch {
	case err != nil:
		return receipt{}, err
	case p.Amount > 100 && !answered:
		return receipt{}, node.Ask(node.Question{ID: "approve", Prompt: fmt.Sprintf("charge %d?", p.Amount)})
	case p.Amount > 100 && !approved:
		return receipt{}, node.Skip("refused")
	}
	return receipt{fmt.Sprint("paid ", p.Amount)}, nil
})

// ok is for the examples, which have no test to fail.
func ok[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// exampleEngine is an engine in memory with the graph published, on a clock that the example moves.
func exampleEngine(cfg lifecycle.Config) (*lifecycle.Engine, *lifecycle.VirtualClock, graph.Ref) {
	clock := lifecycle.NewVirtualClock(time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC))
	cfg.Clock, cfg.Backend, cfg.Logger = clock, memory.New(memory.Options{Now: clock.Now}), quiet
	if cfg.Nodes == nil {
		cfg.Nodes = node.NewRegistry().Add(charge)
	}
	e := ok(lifecycle.New(cfg))
	return e, clock, ok(e.Publish(context.Background(), ok(graph.ParseYAML([]byte(order)))))
}

// What is wrong with a configuration is told at once.
func ExampleNew() {
	_, err := lifecycle.New(lifecycle.Config{Backend: memory.New(memory.Options{}), TTL: time.Millisecond})
	fmt.Println(err)
	// Output:
	// belay: invalid configuration:
	// 	Nodes is nil: pass node.NewRegistry() with the node types of your graphs added
	// 	TTL is 1ms: use at least 10ms, since heartbeats go out every third of it
}

// Drain drives what is due until nothing is, for tests and for programs that end.
func ExampleEngine_Drain() {
	ctx := context.Background()
	engine, _, ref := exampleEngine(lifecycle.Config{})
	ok(engine.Start(ctx, ref, payment{7}, lifecycle.StartOptions{}))
	did := ok(engine.Drain(ctx, lifecycle.DrainOptions{}))
	fmt.Println(did.Claims, did.Commits)
	// Output: 1 1
}

// Run serves until it is told to stop.
func ExampleEngine_Run() {
	ctx := context.Background()
	engine := ok(lifecycle.New(lifecycle.Config{Backend: memory.New(memory.Options{}), Nodes: node.NewRegistry().Add(charge)}))
	over := make(chan error)
	go func() { over <- engine.Run(ctx) }()

	ref := ok(engine.Publish(ctx, ok(graph.ParseYAML([]byte(order)))))
	r := ok(engine.Start(ctx, ref, payment{7}, lifecycle.StartOptions{}))
	r = ok(engine.Await(ctx, r.ID))
	fmt.Println(r.Status, string(r.Output))
	fmt.Println(engine.Shutdown(ctx), <-over)
	// Output:
	// done {"receipt":"paid 7"}
	// <nil> <nil>
}

// Two starts with one key are one run: a caller that did not hear the answer starts again.
func ExampleClient_Start_key() {
	ctx := context.Background()
	engine, _, ref := exampleEngine(lifecycle.Config{})
	once := lifecycle.StartOptions{Key: "order-42", Window: 24 * time.Hour}
	first := ok(engine.Start(ctx, ref, payment{7}, once))
	second := ok(engine.Start(ctx, ref, payment{7}, once))
	fmt.Println(first.Existing, second.Existing, first.ID == second.ID)
	// Output: false true true
}

// A run may be started for later.
func ExampleClient_Start_later() {
	ctx := context.Background()
	engine, clock, ref := exampleEngine(lifecycle.Config{})
	r := ok(engine.Start(ctx, ref, payment{7}, lifecycle.StartOptions{At: clock.Now().Add(time.Hour)}))
	fmt.Println(ok(engine.Drain(ctx, lifecycle.DrainOptions{})).Claims)
	clock.Advance(time.Hour)
	fmt.Println(ok(engine.Drain(ctx, lifecycle.DrainOptions{})).Claims, ok(engine.Fetch(ctx, r.ID)).Status)
	// Output:
	// 0
	// 1 done
}

// Many runs are started with few round trips, each with its own answer.
func ExampleClient_StartMany() {
	engine, _, ref := exampleEngine(lifecycle.Config{})
	started := ok(engine.StartMany(context.Background(), ref, []lifecycle.NewRun{
		{Input: payment{7}}, {Input: map[string]string{"amount": "much"}}, {Input: payment{8}},
	}))
	for _, s := range started {
		fmt.Println(s.Err == nil)
	}
	// Output:
	// true
	// false
	// true
}

// A node asks, the run waits and holds nothing, and somebody answers.
func ExampleClient_Resolve() {
	ctx := context.Background()
	engine, _, ref := exampleEngine(lifecycle.Config{})
	r := ok(engine.Start(ctx, ref, payment{5000}, lifecycle.StartOptions{}))
	ok(engine.Drain(ctx, lifecycle.DrainOptions{}))
	r = ok(engine.Await(ctx, r.ID))
	question := r.OpenInterrupts()[0]
	fmt.Println(r.Status, question.ID, string(question.Question))

	ok(engine.Resolve(ctx, r.ID, question.ID, true))
	ok(engine.Drain(ctx, lifecycle.DrainOptions{}))
	fmt.Println(string(ok(engine.Fetch(ctx, r.ID)).Output))
	// Output:
	// waiting approve "charge 5000?"
	// {"receipt":"paid 5000"}
}

// A cancel holds: no node of the run begins any more. Cancelling again is no error.
func ExampleClient_Cancel() {
	ctx := context.Background()
	engine, _, ref := exampleEngine(lifecycle.Config{})
	r := ok(engine.Start(ctx, ref, payment{7}, lifecycle.StartOptions{}))
	r = ok(engine.Cancel(ctx, r.ID, "the customer changed her mind"))
	fmt.Println(r.Status, r.Reason)
	_, err := engine.Cancel(ctx, r.ID, "again")
	fmt.Println(err, ok(engine.Drain(ctx, lifecycle.DrainOptions{})).Claims)
	// Output:
	// cancelled the customer changed her mind
	// <nil> 0
}

// Await ends with its context, and says how the run was then.
func ExampleClient_Await() {
	ctx := context.Background()
	engine, _, ref := exampleEngine(lifecycle.Config{})
	r := ok(engine.Start(ctx, ref, payment{7}, lifecycle.StartOptions{}))
	ctx, stop := context.WithCancelCause(ctx)
	stop(errors.New("nobody drives it here"))
	_, err := engine.Await(ctx, r.ID)
	var late *lifecycle.AwaitError
	fmt.Println(errors.As(err, &late), late.Cause)
	// Output: true nobody drives it here
}

// The history of a run is read in pages.
func ExampleClient_Events() {
	ctx := context.Background()
	engine, _, ref := exampleEngine(lifecycle.Config{})
	r := ok(engine.Start(ctx, ref, payment{7}, lifecycle.StartOptions{}))
	ok(engine.Drain(ctx, lifecycle.DrainOptions{}))
	for q := (backend.EventQuery{Limit: 4}); ; {
		page := ok(engine.Events(ctx, r.ID, q))
		for _, event := range page.Events {
			fmt.Println(event.Seq, event.Type)
		}
		if q.After = page.Next; !page.HasMore {
			break
		}
	}
	// Output:
	// 1 edge_fired
	// 2 run_initialized
	// 3 checkpoint_committed
	// 4 node_completed
	// 5 state_updated
	// 6 edge_fired
	// 7 run_completed
	// 8 checkpoint_committed
}

// Runs are listed newest first, without their documents.
func ExampleClient_List() {
	ctx := context.Background()
	engine, clock, ref := exampleEngine(lifecycle.Config{})
	for _, id := range []string{"a", "b", "c"} {
		ok(engine.Start(ctx, ref, payment{7}, lifecycle.StartOptions{ID: id}))
		clock.Advance(time.Second)
	}
	page := ok(engine.List(ctx, backend.Query{Limit: 2, GraphID: "order"}))
	for _, s := range page.Runs {
		fmt.Println(s.Run, s.Status)
	}
	fmt.Println(page.HasMore)
	// Output:
	// c running
	// b running
	// true
}

// A client of one tenant sees that tenant's graphs and runs only.
func ExampleEngine_For() {
	ctx := context.Background()
	engine, _, _ := exampleEngine(lifecycle.Config{})
	acme := engine.For("acme")
	ref := ok(acme.Publish(ctx, ok(graph.ParseYAML([]byte(order)))))
	r := ok(acme.Start(ctx, ref, payment{7}, lifecycle.StartOptions{}))
	_, err := engine.For("globex").Fetch(ctx, r.ID)
	fmt.Println(errors.Is(err, backend.ErrNotFound))
	// Output: true
}

// A run that cannot begin anywhere is set aside in the end, and freed once the cause is gone.
func ExampleClient_RetryPoisoned() {
	ctx := context.Background()
	clock := lifecycle.NewVirtualClock(time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC))
	store := memory.New(memory.Options{Now: clock.Now})
	able := ok(lifecycle.New(lifecycle.Config{Backend: store, Clock: clock, Nodes: node.NewRegistry().Add(charge)}))
	ref := ok(able.Publish(ctx, ok(graph.ParseYAML([]byte(order)))))
	r := ok(able.Start(ctx, ref, payment{7}, lifecycle.StartOptions{}))

	old := ok(lifecycle.New(lifecycle.Config{Backend: store, Clock: clock, Nodes: node.NewRegistry(), MaxAbandons: 1, Logger: quiet}))
	clock.AdvanceTo(ok(old.Drain(ctx, lifecycle.DrainOptions{})).Next)
	ok(old.Drain(ctx, lifecycle.DrainOptions{}))
	_, err := able.Await(ctx, r.ID)
	fmt.Println(errors.Is(err, lifecycle.ErrPoisoned))

	ok(able.RetryPoisoned(ctx, r.ID))
	ok(able.Drain(ctx, lifecycle.DrainOptions{}))
	fmt.Println(ok(able.Await(ctx, r.ID)).Status)
	// Output:
	// true
	// done
}

// A day passes at once on a clock that the program moves.
func ExampleVirtualClock() {
	clock := lifecycle.NewVirtualClock(time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC))
	clock.AfterFunc(24*time.Hour, func() { fmt.Println("it is", clock.Now().Format(time.DateTime)) })
	clock.Advance(48 * time.Hour)
	fmt.Println("it is", clock.Now().Format(time.DateTime))
	// Output:
	// it is 2030-01-03 12:00:00
	// it is 2030-01-04 12:00:00
}

// An observer is told of what happened, after it did.
func ExampleObserver() {
	ctx := context.Background()
	engine, _, ref := exampleEngine(lifecycle.Config{Observers: []lifecycle.Observer{{
		Claimed: func(_ context.Context, c lifecycle.ObservedClaim) context.Context {
			fmt.Println("claimed,", c.Class)
			return nil
		},
		Attempted: func(_ context.Context, a lifecycle.ObservedAttempt) { fmt.Println(a.Node, a.Outcome) },
		Committed: func(_ context.Context, c lifecycle.ObservedCommit) { fmt.Println("commit", c.Seq, c.Type) },
	}}})
	ok(engine.Start(ctx, ref, payment{7}, lifecycle.StartOptions{}))
	ok(engine.Drain(ctx, lifecycle.DrainOptions{}))
	// Output:
	// commit 1 run_initialized
	// claimed, ready
	// charge completed
	// commit 2 run_completed
}

// Middleware of an engine wraps every attempt: here one that admits only so much at once to a node
// type, and hands the rest back for later.
func ExampleConfig_middleware() {
	ctx := context.Background()
	var tokens atomic.Int64 // several runs are driven at once
	tokens.Store(1)
	limited := func(next node.Func) node.Func {
		return func(ctx context.Context, call *node.Call) (map[string]value.Value, error) {
			if tokens.Add(-1) < 0 {
				return nil, node.Snooze(node.Now(ctx).Add(time.Minute)) // no attempt is used up
			}
			return next(ctx, call)
		}
	}
	engine, _, ref := exampleEngine(lifecycle.Config{Middleware: []node.Middleware{limited}})
	for range 2 {
		ok(engine.Start(ctx, ref, payment{7}, lifecycle.StartOptions{}))
	}
	did := ok(engine.Drain(ctx, lifecycle.DrainOptions{}))
	fmt.Println(did.Claims, !did.Next.IsZero(), len(ok(engine.List(ctx, backend.Query{Limit: 10, Statuses: []run.Status{run.Done}})).Runs))
	// Output: 2 true 1
}

// A paused engine claims nothing; its clients go on.
func ExampleEngine_Pause() {
	engine, _, _ := exampleEngine(lifecycle.Config{})
	engine.Pause()
	fmt.Println(engine.Health().Paused)
	engine.Resume()
	fmt.Println(engine.Health().Paused)
	// Output:
	// true
	// false
}

// Stats counts what the engine did.
func ExampleEngine_Stats() {
	ctx := context.Background()
	engine, _, ref := exampleEngine(lifecycle.Config{})
	ok(engine.Start(ctx, ref, payment{7}, lifecycle.StartOptions{}))
	ok(engine.Drain(ctx, lifecycle.DrainOptions{}))
	stats := engine.Stats()
	fmt.Println(stats.Claims, stats.Commits, stats.Abandons, stats.Poisons)
	// Output: 1 1 0 0
}
