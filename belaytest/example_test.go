package belaytest_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/belaytest"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
)

// exampleT stands for the *testing.T of a test: it prints what the test would report.
type exampleT struct{ testing.TB }

func (exampleT) Helper()                  {}
func (exampleT) Context() context.Context { return context.Background() }
func (exampleT) Output() io.Writer        { return io.Discard }

func (exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

var t exampleT

// An order, with its retry, its question and a day of waiting, in a test that takes no time.
func Example() {
	e := belaytest.New(t, belay.Config{Nodes: orderNodes()})
	ref := e.MustPublishYAML(order) // or MustPublishFile("order.yaml")
	r := e.MustStart(ref, payment{7})

	e.Rest(r.ID)
	e.WantAsked(r.ID, "ship it?")
	e.MustResolve(r.ID, true)
	e.Rest(r.ID)
	e.WantDone(r.ID, map[string]any{"receipt": "paid 7", "approved": true})
	fmt.Println(strings.Join(e.Story(r.ID), "\n"))
	// Output:
	// run_initialized
	// node_failed charge: node_error
	// node_completed charge
	// interrupt_requested approve
	// interrupt_resolved approve
	// node_completed approve
	// node_snoozed ship
	// node_completed ship
	// run_completed
}

// Time passes only when the test says so.
func ExampleEngine_Advance() {
	e := belaytest.New(t, belay.Config{Nodes: std.Register(node.NewRegistry())})
	r := e.MustStart(e.MustPublishYAML(sleeper), nil)

	e.Advance(23 * time.Hour)
	fmt.Println(e.MustInspect(r.ID).Status)
	e.Advance(time.Hour)
	fmt.Println(e.MustInspect(r.ID).Status)
	// Output:
	// running
	// done
}

// Quiet drives what is due now, and says when there is more to do.
func ExampleEngine_Quiet() {
	e := belaytest.New(t, belay.Config{Nodes: std.Register(node.NewRegistry())})
	e.MustStart(e.MustPublishYAML(sleeper), nil)

	did := e.Quiet()
	fmt.Println(did.Claims, did.Commits, did.Next.Sub(e.Clock.Now()))
	// Output: 1 1 24h0m0s
}

// A process falls after it has claimed the run; the next one goes on once the claim has expired.
func ExampleCrash() {
	e := belaytest.New(t, belay.Config{Nodes: orderNodes(), TTL: time.Minute})
	r := e.MustStart(e.MustPublishYAML(order), payment{7})
	belaytest.Crash(t, e.Store, 1)

	fmt.Println(e.Quiet().Claims)
	e.Rest(r.ID)
	e.WantAsked(r.ID, "ship it?")
	fmt.Println(e.Clock.Now().After(belaytest.Epoch.Add(time.Minute)))
	// Output:
	// 0
	// true
}

// What a test reports names the run's story.
func ExampleEngine_WantFailed() {
	e := belaytest.New(t, belay.Config{Nodes: orderNodes()})
	r, err := e.Start(context.Background(), e.MustPublishYAML(order), payment{7}, belay.StartOptions{ID: "order-7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	e.Rest(r.ID)
	e.WantFailed(r.ID, "node_error")
	// Output:
	// run order-7 is waiting, want failed
	// it asks order-7:2:approve: "ship it?"
	// its story: run_initialized, node_failed charge: node_error, node_completed charge, interrupt_requested approve
}
