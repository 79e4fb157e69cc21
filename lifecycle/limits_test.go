package lifecycle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// fan is a graph of five nodes of the limited type, and a free one, side by side.
const fan = `
id: fan
nodes:
  a: {use: work, timeout: 2s}
  b: {use: work, timeout: 2s}
  c: {use: work, timeout: 2s}
  d: {use: work, timeout: 2s}
  e: {use: work, timeout: 2s}
  f: {use: free}
edges:
  a: {from: $start, to: a}
  b: {from: $start, to: b}
  c: {from: $start, to: c}
  d: {from: $start, to: d}
  e: {from: $start, to: e}
  f: {from: $start, to: f}
`

func TestNoMoreNodesOfATypeRunAtOnceThanItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, free atomic.Int64
		e := newEngine(t, newMemory(nil), options{NodeLimits: map[string]int{"work": 2}}, act("work", func(ctx context.Context) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second) // a timeout of 2s begins with the turn
			now.Add(-1)
			return ctx.Err()
		}), act("free", func(context.Context) error { free.Add(1); return nil }))
		ref := publish(t, &e.Client, fan)
		for range 3 {
			start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		}
		began := time.Now()
		if d := drain(t, e); d.Commits != 3 {
			t.Errorf("%+v", d)
		}
		if took := time.Since(began); most.Load() != 2 || free.Load() != 3 || took != 8*time.Second {
			t.Errorf("%d at once, %d free ones, in %v: want 15 nodes by twos, in 8s", most.Load(), free.Load(), took)
		}
		page, err := e.List(t.Context(), backend.Query{Limit: 10, Statuses: []run.Status{run.Done}})
		if err != nil || len(page.Runs) != 3 {
			t.Errorf("%d done, %v", len(page.Runs), err)
		}
	})
}

func TestNodesThatWaitForTheirTurnEndWithTheirRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var launches [2]atomic.Int64 // of the run that is cancelled, and of the other
		e := newEngine(t, newMemory(nil), options{NodeLimits: map[string]int{"work": 1}}, act("work", func(ctx context.Context) error {
			if call, _ := node.FromContext(ctx); call.Run != "3" {
				launches[call.Run[0]-'1'].Add(1)
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Second):
				return nil
			}
		}), act("free", func(context.Context) error { return nil }))
		ref := publish(t, &e.Client, fan)
		first := start(t, &e.Client, ref, nil, lifecycle.StartOptions{ID: "1"})
		second := start(t, &e.Client, ref, nil, lifecycle.StartOptions{ID: "2"})
		over := background(t, e, t.Context())
		time.Sleep(500 * time.Millisecond)
		begun := launches[0].Load() // one, or none: either run may have been the first
		if _, err := e.Cancel(t.Context(), first.ID, ""); err != nil {
			t.Fatal(err)
		}
		if err := <-over; err != nil {
			t.Fatal(err)
		}
		wantStatus(t, inspect(t, &e.Client, first.ID), run.Cancelled)
		wantStatus(t, inspect(t, &e.Client, second.ID), run.Done)
		if first, second := launches[0].Load(), launches[1].Load(); first != begun || begun > 1 || second != 5 {
			t.Errorf("launches: %d of the cancelled run, %d of them after the cancel, and %d of the other, which has five", first, first-begun, second)
		}
		if s := e.Stats(); s.StuckNodes != 0 {
			t.Errorf("stuck nodes: %+v", s)
		}
		// The turns are all free again.
		start(t, &e.Client, ref, nil, lifecycle.StartOptions{ID: "3"})
		drain(t, e)
		wantStatus(t, inspect(t, &e.Client, "3"), run.Done)
	})
}

func TestShutdownReleasesRunsWhoseNodesWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, newMemory(nil), options{NodeLimits: map[string]int{"work": 1}, ShutdownTimeout: time.Second}, act("work", func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}), act("free", func(context.Context) error { return nil }))
		ref := publish(t, &e.Client, fan)
		shutdown := serve(t, e)
		r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		synctest.Wait()
		began := time.Now()
		if err := shutdown(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v", took)
		}
		if got := inspect(t, &e.Client, r.ID); got.Attempts != 0 || !got.ClaimedAt.IsZero() {
			t.Errorf("attempts %d, claimed at %v", got.Attempts, got.ClaimedAt)
		}
	})
}

func TestOwnerCapBoundsWhatOneOwnerHoldsAndStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		e := newEngine(t, newMemory(nil), options{Concurrency: 8, OwnerCap: 3}, act("work", func(context.Context) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			now.Add(-1)
			return nil
		}))
		acme := e.For("acme")
		ref := publish(t, acme, single)
		serve(t, e)
		var last *lifecycle.Run
		for range 9 {
			last = start(t, acme, ref, nil, lifecycle.StartOptions{})
		}
		began := time.Now()
		if _, err := acme.Await(t.Context(), last.ID); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); most.Load() != 3 || took != 3*time.Second {
			t.Errorf("%d at once, in %v: want nine by threes in 3s", most.Load(), took)
		}
	})
}

func TestH31ARunOfAnotherOwnerIsAmongTheFirstTwoBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(nil)
		var started atomic.Int64
		var when int64
		e := newEngine(t, store, options{Concurrency: 10, Fairness: 1}, act("work", func(context.Context) error {
			started.Add(1)
			time.Sleep(time.Second)
			return nil
		}), act("mark", func(context.Context) error { when = started.Load(); return nil }))
		many, few := e.For("many"), e.For("few")
		ref := publish(t, many, single)
		for range 200 {
			start(t, many, ref, nil, lifecycle.StartOptions{})
		}
		r := start(t, few, publish(t, few, `
id: mark
nodes: {mark: {use: mark}}
edges: {in: {from: $start, to: mark}, out: {from: mark, to: $finish}}
`), nil, lifecycle.StartOptions{})
		serve(t, e)
		got, err := few.Await(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		wantStatus(t, got, run.Done)
		if when > 20 {
			t.Errorf("the other owner's run began after %d of 200", when)
		}
	})
}

func TestRetentionDeletesWhatIsOldEnoughAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, newMemory(nil), options{
			PollInterval: time.Minute, Concurrency: 50,
			Retention: &lifecycle.Retention{After: 24 * time.Hour, Batch: 10},
		}, act("work", func(context.Context) error { return nil }), ask)
		ref := publish(t, &e.Client, single)
		waiting := start(t, &e.Client, publish(t, &e.Client, question), nil, lifecycle.StartOptions{})
		var old []string
		for range 35 {
			old = append(old, start(t, &e.Client, ref, nil, lifecycle.StartOptions{}).ID)
		}
		serve(t, e)
		time.Sleep(20 * time.Hour)
		young := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		time.Sleep(2 * time.Hour)
		for _, id := range old {
			wantStatus(t, inspect(t, &e.Client, id), run.Done)
		}
		time.Sleep(4 * time.Hour)
		for _, id := range old {
			if _, err := e.Inspect(t.Context(), id); !errors.Is(err, backend.ErrNotFound) {
				t.Fatalf("run %s is still there: %v", id, err)
			}
		}
		wantStatus(t, inspect(t, &e.Client, young.ID), run.Done)
		wantStatus(t, inspect(t, &e.Client, waiting.ID), run.Waiting)
	})
}
