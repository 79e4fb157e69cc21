package lifecycle_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// A run that waits for its retry moves to a version of its graph in which its node has another name.
func ExampleClient_Migrate() {
	ctx := context.Background()
	down := true
	nodes := node.NewRegistry().Add(node.Of("send", 1, func(context.Context, none) (none, error) {
		if down {
			return none{}, errors.New("the mail server is down")
		}
		return none{}, nil
	}))
	engine, clock, _ := exampleEngine(lifecycle.Config{Nodes: nodes.Add(charge)})
	version := func(name string) graph.Ref {
		return ok(engine.Publish(ctx, ok(graph.ParseYAML([]byte(`
id: letter
nodes: {`+name+`: {use: send, retry: {max_attempts: 5, backoff: {initial: 1m}}}}
edges: {begin: {from: $start, to: `+name+`}}
`)))))
	}
	r := ok(engine.Start(ctx, version("send"), nil, lifecycle.StartOptions{}))
	drained := ok(engine.Drain(ctx, lifecycle.DrainOptions{}))

	second := version("post")
	_, err := engine.Migrate(ctx, r.ID, second, lifecycle.MigrateOptions{})
	var refused *run.MigrationError
	fmt.Println("without a mapping it is refused:", errors.As(err, &refused))
	r = ok(engine.Migrate(ctx, r.ID, second, lifecycle.MigrateOptions{
		Mapping: run.Mapping{Nodes: map[string]string{"send": "post"}},
	}))
	fmt.Println("of the second version:", r.Graph == second)

	down = false
	clock.AdvanceTo(drained.Next)
	ok(engine.Drain(ctx, lifecycle.DrainOptions{}))
	fmt.Println(ok(engine.Fetch(ctx, r.ID)).Status)
	// Output:
	// without a mapping it is refused: true
	// of the second version: true
	// done
}

// Before a release is rolled out: can it go on with the runs that are in flight?
func ExampleCompat() {
	ctx := context.Background()
	store := memory.New(memory.Options{})
	before := ok(lifecycle.New(lifecycle.Config{Backend: store, Nodes: node.NewRegistry().Add(charge), Logger: quiet}))
	ref := ok(before.Publish(ctx, ok(graph.ParseYAML([]byte(order)))))
	for range 3 {
		ok(before.Start(ctx, ref, map[string]int{"amount": 42}, lifecycle.StartOptions{}))
	}

	release := node.NewRegistry().Add(node.Of("charge", 2, func(context.Context, payment) (receipt, error) { return receipt{}, nil }))
	for _, c := range ok(lifecycle.Compat(ctx, store, release, lifecycle.CompatOptions{})) {
		fmt.Printf("%s: %d running\n", c.Graph.ID, c.Running)
		for _, reason := range c.Reasons {
			fmt.Printf("node %s: %s\n", reason.Node, reason.Code)
		}
	}
	// Output:
	// order: 3 running
	// node charge: unsupported_version
}

// At most two calls at once of a service that allows no more, however many runs are driven.
func ExampleConfig_nodeLimits() {
	ctx := context.Background()
	begun, goOn := make(chan struct{}), make(chan struct{})
	nodes := node.NewRegistry().Add(node.Of("call", 1, func(context.Context, none) (none, error) {
		begun <- struct{}{}
		<-goOn
		return none{}, nil
	}))
	engine, _, _ := exampleEngine(lifecycle.Config{
		Nodes: nodes.Add(charge), Concurrency: 10, NodeLimits: map[string]int{"call": 2},
	})
	ref := ok(engine.Publish(ctx, ok(graph.ParseYAML([]byte(`
id: calls
nodes: {call: {use: call}}
edges: {begin: {from: $start, to: call}}
`)))))
	for range 5 {
		ok(engine.Start(ctx, ref, nil, lifecycle.StartOptions{}))
	}
	over := make(chan lifecycle.Drained)
	go func() { over <- ok(engine.Drain(ctx, lifecycle.DrainOptions{})) }()

	<-begun
	<-begun
	select {
	case <-begun:
		fmt.Println("a third one has begun")
	case <-time.After(10 * time.Millisecond):
		fmt.Println("two have begun, the others wait for their turn")
	}
	for range 3 {
		goOn <- struct{}{}
		<-begun
	}
	goOn <- struct{}{}
	goOn <- struct{}{}
	fmt.Println((<-over).Commits, "runs are done")
	// Output:
	// two have begun, the others wait for their turn
	// 5 runs are done
}

// What has been finished for a month is deleted, but for the two newest.
func ExampleRetention() {
	ctx, stop := context.WithCancel(context.Background())
	const month = 30 * 24 * time.Hour
	engine, clock, ref := exampleEngine(lifecycle.Config{
		Retention: &lifecycle.Retention{After: month, Keep: 2, Every: time.Hour},
	})
	for i := range 5 {
		ok(engine.Start(ctx, ref, map[string]int{"amount": i}, lifecycle.StartOptions{}))
		ok(engine.Drain(ctx, lifecycle.DrainOptions{}))
		clock.Advance(time.Minute)
	}
	count := func() int { return len(ok(engine.List(ctx, backend.Query{Limit: 10})).Runs) }
	fmt.Println(count(), "runs")

	over := make(chan error)
	go func() { over <- engine.Run(ctx) }()
	clock.Advance(month)
	for count() > 2 {
		clock.Advance(time.Hour)
		time.Sleep(time.Millisecond) // for the engine, which this clock does not wait for
	}
	fmt.Println(count(), "a month later")
	stop()
	<-over
	// Output:
	// 5 runs
	// 2 a month later
}

// An order and its run are stored by one transaction of the host's, or neither is.
func ExampleClient_StartIn() {
	ctx := context.Background()
	dir := ok(os.MkdirTemp("", "example"))
	defer os.RemoveAll(dir)
	store := ok(sqlite.Open(ctx, filepath.Join(dir, "orders.db"), sqlite.Options{}))
	defer store.Close()
	engine := ok(lifecycle.New(lifecycle.Config{Backend: store, Nodes: node.NewRegistry().Add(charge), Logger: quiet}))
	ref := ok(engine.Publish(ctx, ok(graph.ParseYAML([]byte(order)))))

	host := ok(sql.Open("sqlite", store.HostDSN()))
	defer host.Close()
	ok(host.ExecContext(ctx, "create table orders (id text primary key)"))
	for _, id := range []string{"order-1", "order-2"} {
		tx := ok(host.BeginTx(ctx, nil))
		ok(tx.ExecContext(ctx, "insert into orders (id) values (?)", id))
		ok(engine.StartIn(ctx, store.WithTx(tx), ref, map[string]int{"amount": 42}, lifecycle.StartOptions{ID: id}))
		if id == "order-1" {
			ok(0, tx.Rollback())
			continue
		}
		ok(0, tx.Commit())
		engine.Wake() // a Run in this process begins it at once
	}
	ok(engine.Drain(ctx, lifecycle.DrainOptions{}))
	for _, r := range ok(engine.List(ctx, backend.Query{Limit: 10})).Runs {
		fmt.Println(r.Run, r.Status)
	}
	// Output: order-2 done
}
