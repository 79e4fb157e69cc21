package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// chain is a graph of n nodes, one after the other.
func chain(n int) string {
	var b strings.Builder
	b.WriteString("id: chain\nnodes:\n")
	for i := range n {
		fmt.Fprintf(&b, "  n%d: {use: work}\n", i)
	}
	b.WriteString("edges:\n  in: {from: $start, to: n0}\n")
	for i := range n - 1 {
		fmt.Fprintf(&b, "  e%d: {from: n%d, to: n%d}\n", i, i, i+1)
	}
	fmt.Fprintf(&b, "  out: {from: n%d, to: $finish}\n", n-1)
	return b.String()
}

func TestDrainDrivesRunsToTheirEnd(t *testing.T) {
	type in struct{ A, B int }
	type out struct {
		Sum int `json:"sum"`
	}
	e := newEngine(t, newMemory(nil), options{},
		node.Of("add", 1, func(_ context.Context, i in) (out, error) { return out{i.A + i.B}, nil }))
	ref := publish(t, &e.Client, `
id: add
inputs: {a: {schema: {type: integer}, required: true}, b: {schema: {type: integer}, required: true}}
fields: {sum: {schema: {type: integer}}}
nodes: {add: {use: add, reads: {A: a, B: b}}}
edges: {in: {from: $start, to: add}, out: {from: add, to: $finish}}
outputs: {total: {from: sum}}
`)
	r := start(t, &e.Client, ref, map[string]int{"a": 2, "b": 3}, lifecycle.StartOptions{})
	d := drain(t, e)
	if d.Claims != 1 || d.Commits != 1 || !d.Next.IsZero() {
		t.Errorf("drained %+v, want one claim and one commit", d)
	}
	got, err := e.Await(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, got, run.Done)
	if string(got.Output) != `{"total":5}` {
		t.Errorf("output %s", got.Output)
	}
}

func TestDrainHoldsNoMoreRunsAtOnceThanItsConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		e := newEngine(t, newMemory(nil), options{Concurrency: 3}, act("work", func(context.Context) error {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return nil
		}))
		ref := publish(t, &e.Client, single)
		for range 9 {
			start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		}
		began := time.Now()
		d := drain(t, e)
		if d.Claims != 9 || d.Commits != 9 || most.Load() != 3 || time.Since(began) != 3*time.Second {
			t.Errorf("%+v, %d at once, in %v: want 9 runs by threes in 3s", d, most.Load(), time.Since(began))
		}
	})
}

func TestDrainOfGivenRunsLeavesOthersAlone(t *testing.T) {
	e := newEngine(t, newMemory(nil), options{}, act("work", func(context.Context) error { return nil }))
	ref := publish(t, &e.Client, single)
	for _, id := range []string{"a", "b"} {
		start(t, &e.Client, ref, nil, lifecycle.StartOptions{ID: id})
	}
	if _, err := e.Drain(t.Context(), lifecycle.DrainOptions{Runs: []string{"b"}}); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, inspect(t, &e.Client, "b"), run.Done)
	if got := inspect(t, &e.Client, "a"); got.Seq != 1 || got.Attempts != 0 {
		t.Errorf("the other run was touched: %+v", got)
	}
	plain := newEngine(t, &faulty{Store: newMemory(nil), features: func(f *backend.Features) { f.ClaimFilter = false }}, options{})
	if _, err := plain.Drain(t.Context(), lifecycle.DrainOptions{Runs: []string{"b"}}); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("without a claim filter: %v", err)
	}
}

func TestDrainServesEveryOwner(t *testing.T) {
	e := newEngine(t, newMemory(nil), options{Fairness: claim.Interleave, Concurrency: 2}, act("work", func(context.Context) error { return nil }))
	acme := e.For("acme")
	for range 20 {
		start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
	}
	r := start(t, acme, publish(t, acme, single), nil, lifecycle.StartOptions{})
	drain(t, e)
	wantStatus(t, inspect(t, acme, r.ID), run.Done)
}

func TestDrainEndsWithTheErrorOfABackendThatCannotBeClaimedFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panicking := &faulty{Store: newMemory(nil), fail: func(string, bool) error { panic("no claims today") }}
		if _, err := newEngine(t, panicking, options{}).Drain(t.Context(), lifecycle.DrainOptions{}); err == nil || !strings.Contains(err.Error(), "the backend panicked: a value of type string") {
			t.Errorf("a backend that panics: %v", err)
		}
		for _, bad := range []error{backend.ErrClosed, transient("claim")} {
			store := &faulty{Store: newMemory(nil), fail: func(op string, _ bool) error {
				if op == "claim" {
					return bad
				}
				return nil
			}}
			e := newEngine(t, store, options{})
			if _, err := e.Drain(t.Context(), lifecycle.DrainOptions{}); !errors.Is(err, bad) {
				t.Errorf("%v, want %v", err, bad)
			}
		}
	})
}

func TestSeveralDrainsOfOneEngineShareTheWork(t *testing.T) {
	var launches atomic.Int64
	e := newEngine(t, newMemory(nil), options{}, act("work", func(context.Context) error { launches.Add(1); return nil }))
	ref := publish(t, &e.Client, chain(3))
	const runs = 200
	for range runs {
		start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
	}
	var commits atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			d, err := e.Drain(context.Background(), lifecycle.DrainOptions{})
			if err != nil {
				t.Error(err)
			}
			commits.Add(int64(d.Commits))
		})
	}
	all.Wait()
	if commits.Load() != 3*runs || launches.Load() != 3*runs {
		t.Errorf("%d commits, %d launches, want %d", commits.Load(), launches.Load(), 3*runs)
	}
	page, err := e.List(t.Context(), backend.Query{Limit: backend.MaxLimit, Statuses: []run.Status{run.Done}})
	if err != nil || len(page.Runs) != runs {
		t.Errorf("%d runs done, %v", len(page.Runs), err)
	}
}

// A start per run, some parked, several engines and a shutdown in between: whatever happens, each
// run ends once.
func TestDrainsThatAreShutDownAndTakenUpElsewhereLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(nil)
		var done atomic.Int64
		work := act("work", func(ctx context.Context) error {
			select {
			case <-time.After(100 * time.Millisecond):
				done.Add(1)
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		cfg := options{ShutdownTimeout: 30 * time.Millisecond, Concurrency: 7}
		first := newEngine(t, store, cfg, work)
		ref := publish(t, &first.Client, chain(3))
		for range 40 {
			start(t, &first.Client, ref, nil, lifecycle.StartOptions{})
		}
		for i := range 20 {
			ctx, stop := context.WithTimeout(t.Context(), time.Duration(50+37*i)*time.Millisecond)
			_, _ = newEngine(t, store, cfg, work).Drain(ctx, lifecycle.DrainOptions{})
			stop()
		}
		drain(t, first)
		page, err := first.List(t.Context(), backend.Query{Limit: 100, Statuses: []run.Status{run.Done}})
		if err != nil || len(page.Runs) != 40 {
			t.Fatalf("%d runs done, %v", len(page.Runs), err)
		}
		if done.Load() != 40*3 {
			t.Errorf("%d nodes completed, want %d", done.Load(), 40*3)
		}
	})
}

func TestNextIsOfRunsThatAreStillUnfinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		e := newEngine(t, newMemory(nil), options{},
			act("work", func(context.Context) error { time.Sleep(5 * time.Second); return nil }),
			act("flaky", func(context.Context) error {
				if attempts++; attempts == 1 {
					return errors.New("not yet")
				}
				return nil
			}))
		flaky := start(t, &e.Client, publish(t, &e.Client, `
id: flaky
nodes: {flaky: {use: flaky, retry: {max_attempts: 2, backoff: {initial: 1s}}}}
edges: {in: {from: $start, to: flaky}, out: {from: flaky, to: $finish}}
`), nil, lifecycle.StartOptions{})
		start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		if d := drain(t, e); !d.Next.IsZero() || d.Claims != 3 {
			t.Errorf("%+v: the retry came due while the long run was driven, nothing is left", d)
		}
		wantStatus(t, inspect(t, &e.Client, flaky.ID), run.Done)
	})
}

func TestDrainThatFoundNothingDueIsCompleteWhateverItsContextDoesThen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	store := &faulty{Store: newMemory(nil), fail: func(op string, after bool) error {
		if op == "claim" && after {
			cancel()
		}
		return nil
	}}
	if _, err := newEngine(t, store, options{}).Drain(ctx, lifecycle.DrainOptions{}); err != nil {
		t.Error(err)
	}
}

func TestRunThatMovedOnBetweenClaimAndFetchIsNotExecuted(t *testing.T) {
	inner := newMemory(nil)
	other := newEngine(t, inner, options{}, node.Of("ask", 1, func(ctx context.Context, _ none) (told, error) {
		call, _ := node.FromContext(ctx)
		return told{}, node.Ask(node.Question{ID: call.Node})
	}))
	r := start(t, &other.Client, publish(t, &other.Client, both), nil, lifecycle.StartOptions{})
	drain(t, other)
	if _, err := other.Resolve(t.Context(), r.ID, "q", "one"); err != nil {
		t.Fatal(err)
	}
	cancelled := false
	store := &faulty{Store: inner, features: func(f *backend.Features) { f.ClaimDocuments = nil }, fail: func(op string, after bool) error {
		if op == "fetch" && !after && !cancelled {
			cancelled = true
			if _, err := other.Resolve(t.Context(), r.ID, "p", "two"); err != nil {
				t.Error(err)
			}
		}
		return nil
	}}
	var launches atomic.Int64
	e := newEngine(t, store, options{}, node.Of("ask", 1, func(context.Context, none) (told, error) {
		launches.Add(1)
		return told{}, nil
	}))
	drain(t, e)
	if s := e.Stats(); s.LostClaims != 1 || s.Claims != 2 || launches.Load() != 2 {
		t.Errorf("%+v, %d launches: want the first claim lost before it began, and both nodes run under the second", s, launches.Load())
	}
}

// both asks two questions side by side.
const both = `
id: both
fields: {answer: {schema: {type: string}}}
nodes: {q: {use: ask}, p: {use: ask}}
edges: {a: {from: $start, to: q}, b: {from: $start, to: p}}
`

func TestTroubleInARowWaitsLongerAndLongerUntilSomethingBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := true
		store := &faulty{Store: newMemory(nil), features: func(f *backend.Features) { f.ClaimDocuments = nil }}
		e := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
		ref := publish(t, &e.Client, single)
		store.fail = func(op string, _ bool) error {
			if away && op == "fetch" {
				return transient(op)
			}
			return nil
		}
		trouble := func() time.Duration {
			r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
			d := drain(t, e)
			wait := time.Until(d.Next).Round(time.Second)
			if _, err := e.Cancel(t.Context(), r.ID, ""); err != nil {
				t.Fatal(err)
			}
			return wait
		}
		first := trouble()
		for range 6 {
			trouble()
		}
		if last := trouble(); first > 2*time.Second || last < 30*time.Second || last > 45*time.Second {
			t.Errorf("first %v, after eight in a row %v: want about 1s and 30s to 45s", first, last)
		}
		away = false
		start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		drain(t, e)
		away = true
		if again := trouble(); again > 2*time.Second {
			t.Errorf("after one that began: %v", again)
		}
	})
}

func TestEngineNeedsNoFeatureOfItsBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain := &faulty{Store: newMemory(nil), features: func(f *backend.Features) { *f = backend.Features{} }}
		e := newEngine(t, plain, options{TTL: time.Minute}, ask, act("poll", func(context.Context) error {
			time.Sleep(3 * time.Minute)
			return nil
		}))
		r := start(t, &e.Client, publish(t, &e.Client, asking), nil, lifecycle.StartOptions{})
		drain(t, e)
		asked, err := e.Await(t.Context(), r.ID)
		if err != nil || asked.Status != run.Waiting {
			t.Fatalf("awaited %v, %v", asked, err)
		}
		if _, err := e.Resolve(t.Context(), r.ID, "q", "yes"); err != nil {
			t.Fatal(err)
		}
		drain(t, e)
		if done, err := e.Await(t.Context(), r.ID); err != nil || string(done.Output) != `{"answer":"yes"}` {
			t.Errorf("awaited %v, %v", done, err)
		}
	})
}

func TestDrainOfARunThatIsAlwaysDueAgainEndsAndNamesIt(t *testing.T) {
	e := newEngine(t, newMemory(nil), options{}, act("work", func(ctx context.Context) error {
		call, _ := node.FromContext(ctx)
		return node.Snooze(call.PlannedAt)
	}))
	ref := publish(t, &e.Client, single)
	r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
	d, err := e.Drain(t.Context(), lifecycle.DrainOptions{Parks: 100})
	if !errors.Is(err, lifecycle.ErrNoProgress) || !strings.Contains(err.Error(), r.ID) || d.Commits != 100 {
		t.Errorf("Drain answers %+v, %v", d, err)
	}
	if got := inspect(t, &e.Client, r.ID); !got.ClaimedAt.IsZero() || got.Attempts != 0 {
		t.Errorf("the run is still held: %+v", got)
	}
	if _, err := e.Drain(t.Context(), lifecycle.DrainOptions{Parks: -1}); !errors.Is(err, backend.ErrInvalidArgument) {
		t.Errorf("a bound below zero: %v", err)
	}
}
