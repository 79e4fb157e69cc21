package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// serve runs an engine until the test shuts it down; it answers what Run answered.
func serve(t testing.TB, e *lifecycle.Engine) (shutdown func() error) {
	t.Helper()
	over := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { over <- e.Run(ctx) }()
	for !e.Health().Running {
		runtime.Gosched()
	}
	stopped := false
	shutdown = func() error {
		stopped = true
		cancel()
		return <-over
	}
	t.Cleanup(func() {
		if !stopped {
			_ = shutdown()
		}
	})
	return shutdown
}

// without is a store without some features.
func without(store backend.Store, drop func(*backend.Features)) *faulty {
	return &faulty{Store: store, features: drop}
}

func noWakes(f *backend.Features) { f.Wakes = nil }

// counting counts the statements of a store, but for the graph that is fetched once.
func counting(store backend.Store, drop func(*backend.Features)) (*faulty, *atomic.Int64) {
	var n atomic.Int64
	f := without(store, drop)
	f.fail = func(op string, after bool) error {
		if !after && op != "graph" {
			n.Add(1)
		}
		return nil
	}
	return f, &n
}

func TestRunDrivesWhatIsStartedHereAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, without(newMemory(nil), noWakes), options{}, act("work", func(context.Context) error { return nil }))
		shutdown := serve(t, e)
		ref := publish(t, &e.Client, chain(3))
		began := time.Now()
		r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		got, err := e.Await(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		wantStatus(t, got, run.Done)
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		if err := shutdown(); err != nil {
			t.Errorf("Run answers %v", err)
		}
	})
}

func TestRunFindsWhatIsStartedElsewhere(t *testing.T) {
	for _, tt := range []struct {
		name   string
		drop   func(*backend.Features)
		within time.Duration
	}{
		{"by an announcement", nil, 100 * time.Millisecond},
		{"with the next poll", noWakes, 1250 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := without(newMemory(nil), tt.drop)
				var ran time.Time
				e := newEngine(t, store, options{}, act("work", func(context.Context) error { ran = time.Now(); return nil }))
				other := newEngine(t, store, options{})
				serve(t, e)
				time.Sleep(10 * time.Second)
				ref := publish(t, &e.Client, single)
				synctest.Wait()
				time.Sleep(10 * time.Second)
				began := time.Now()
				r := start(t, &other.Client, ref, nil, lifecycle.StartOptions{})
				time.Sleep(2 * time.Second)
				synctest.Wait()
				wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
				// An idle engine lets announcements gather for a tenth of the poll interval.
				if late := ran.Sub(began); late > tt.within {
					t.Errorf("it ran %v after its start, want within %v", late, tt.within)
				}
			})
		})
	}
}

func TestIdleEngineMakesAtMostOneStatementAPollInterval(t *testing.T) {
	for _, tt := range []struct {
		name string
		drop func(*backend.Features)
	}{{"announced", nil}, {"polling", noWakes}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, n := counting(newMemory(nil), tt.drop)
				e := newEngine(t, store, options{PollInterval: time.Second}, act("work", func(context.Context) error { return nil }))
				serve(t, e)
				r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
				time.Sleep(5 * time.Second) // it has something to do, and then nothing
				wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
				before := n.Load()
				time.Sleep(1000 * time.Second)
				if polls := n.Load() - before; polls > 1000 || polls < 700 {
					t.Errorf("%d statements in 1000 poll intervals", polls)
				}
			})
		})
	}
}

func TestRunWakesForATimerThatComesBeforeTheNextPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := counting(newMemory(nil), noWakes)
		looks := 0
		e := newEngine(t, store, options{PollInterval: 10 * time.Second}, act("work", func(ctx context.Context) error {
			if looks++; looks <= 3 {
				return node.Snooze(time.Now().Add(time.Second))
			}
			return nil
		}))
		serve(t, e)
		began := time.Now()
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		if _, err := e.Await(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 3*time.Second || took > 6*time.Second {
			t.Errorf("three snoozes of a second took %v", took)
		}
		if n.Load() > 40 {
			t.Errorf("%d statements", n.Load())
		}
	})
}

func TestH34RunStartsLaterWhatIsStartedForLater(t *testing.T) {
	for _, tt := range []struct{ after, poll, late time.Duration }{
		{300 * time.Millisecond, time.Second, 50 * time.Millisecond},
		{24 * time.Hour, time.Minute, 75 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var ran time.Time
			e := newEngine(t, without(newMemory(nil), noWakes), options{PollInterval: tt.poll}, act("work", func(context.Context) error { ran = time.Now(); return nil }))
			serve(t, e)
			at := time.Now().Add(tt.after)
			r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{At: at})
			if _, err := e.Await(t.Context(), r.ID); err != nil {
				t.Fatal(err)
			}
			if late := ran.Sub(at); late < 0 || late > tt.late {
				t.Errorf("a run for %v later ran %v late", tt.after, late)
			}
		})
	}
}

func TestRunGoesOnWhenTheBackendHasBeenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		var claims atomic.Int64
		away.Store(true)
		store := without(newMemory(nil), nil)
		store.fail = func(op string, after bool) error {
			if op == "claim" && !after {
				claims.Add(1)
				if away.Load() {
					return transient(op)
				}
			}
			return nil
		}
		e := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
		serve(t, e)
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		time.Sleep(10 * time.Minute)
		if h := e.Health(); h.Err == nil || !h.Running || !h.Claimed.IsZero() {
			t.Errorf("health %+v while the backend is away", h)
		}
		if claims.Load() > 350 {
			t.Errorf("%d claims in 10 minutes of a backend that refuses them", claims.Load())
		}
		away.Store(false)
		if _, err := e.Await(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		}
		if h := e.Health(); h.Err != nil || h.Claimed.IsZero() {
			t.Errorf("health %+v when it is back", h)
		}
	})
}

func TestRunEndsWithTheErrorOfABackendThatWasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(nil)
		e := newEngine(t, store, options{})
		over := make(chan error, 1)
		go func() { over <- e.Run(t.Context()) }()
		time.Sleep(time.Minute)
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-over; !errors.Is(err, backend.ErrClosed) {
			t.Errorf("Run answers %v", err)
		}
	})
}

func TestAnEngineRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, newMemory(nil), options{})
		shutdown := serve(t, e)
		synctest.Wait()
		if err := e.Run(t.Context()); !errors.Is(err, lifecycle.ErrRunning) {
			t.Errorf("a second Run beside the first: %v", err)
		}
		if err := shutdown(); err != nil {
			t.Error(err)
		}
		if err := e.Run(t.Context()); !errors.Is(err, lifecycle.ErrStopped) {
			t.Errorf("a Run after Run: %v", err)
		}
		if err := e.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown of what has ended: %v", err)
		}
		never := newEngine(t, newMemory(nil), options{})
		if err := never.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := never.Run(t.Context()); !errors.Is(err, lifecycle.ErrStopped) {
			t.Errorf("Run after Shutdown: %v", err)
		}
		if never.Health().Running {
			t.Error("it is said to run")
		}
	})
}

func TestShutdownWaitsForTheNodesThatRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, newMemory(nil), options{}, act("work", func(context.Context) error { time.Sleep(5 * time.Second); return nil }))
		shutdown := serve(t, e)
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		synctest.Wait()
		began := time.Now()
		both := make(chan error, 2)
		for range 2 {
			go func() { both <- e.Shutdown(t.Context()) }()
		}
		if err := errors.Join(<-both, <-both); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("Shutdown took %v", took)
		}
		wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
		if err := shutdown(); err != nil {
			t.Error(err)
		}
	})
}

func TestShutdownThatIsCutShortEndsTheNodesAndReleasesTheirRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		e := newEngine(t, newMemory(nil), options{ShutdownTimeout: time.Hour}, act("work", func(ctx context.Context) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		}))
		shutdown := serve(t, e)
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := e.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown answers %v", err)
		}
		if err := shutdown(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Second || !errors.Is(cause, lifecycle.ErrShutdown) {
			t.Errorf("the node ended after %v with %v", took, cause)
		}
		if got := inspect(t, &e.Client, r.ID); got.Status != run.Running || got.Attempts != 0 || got.Wake.IsZero() || got.Wake.After(time.Now()) {
			t.Errorf("the run is %s, attempts %d, wake %v", got.Status, got.Attempts, got.Wake)
		}
	})
}

func TestPausedEngineClaimsNothingAndGoesOnWithWhatItHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := counting(newMemory(nil), nil)
		e := newEngine(t, store, options{}, act("work", func(context.Context) error { time.Sleep(time.Minute); return nil }))
		serve(t, e)
		ref := publish(t, &e.Client, single)
		held := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		synctest.Wait()
		e.Pause()
		later := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		time.Sleep(2 * time.Minute)
		wantStatus(t, inspect(t, &e.Client, held.ID), run.Done)
		if got := inspect(t, &e.Client, later.ID); !got.ClaimedAt.IsZero() || got.Seq != 1 || !e.Health().Paused {
			t.Errorf("a paused engine claimed: %+v", got)
		}
		before := n.Load()
		time.Sleep(time.Hour)
		if n.Load() != before {
			t.Errorf("a paused engine without a run made %d statements", n.Load()-before)
		}
		began := time.Now()
		e.Resume()
		if _, err := e.Await(t.Context(), later.ID); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("after Resume it took %v", took)
		}
	})
}

func TestH12LaunchFailureReleasesAndDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		var claims atomic.Int64
		away.Store(true)
		store := without(newMemory(nil), func(f *backend.Features) { f.ClaimDocuments = nil })
		e := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
		ref := publish(t, &e.Client, single)
		store.fail = func(op string, after bool) error {
			switch {
			case op == "claim" && !after:
				claims.Add(1)
			case op == "fetch" && away.Load():
				return transient(op)
			}
			return nil
		}
		serve(t, e)
		synctest.Wait()
		r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		claims.Store(0)
		time.Sleep(100 * time.Second)
		if claims.Load() > 250 {
			t.Errorf("%d claims in 100 seconds", claims.Load())
		}
		if got := inspect(t, &e.Client, r.ID); got.Attempts > 1 || !got.Poison.At.IsZero() {
			t.Errorf("attempts %d, poison %+v", got.Attempts, got.Poison)
		}
		away.Store(false)
		if _, err := e.Await(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		}
	})
}

func TestH7ForeignWorkIsLeftForWhoCanDoIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(nil)
		lacking := newEngine(t, store, options{}, act("other", func(context.Context) error { return nil }))
		narrow := newEngine(t, store, options{Graphs: []claim.GraphFilter{{ID: "other"}}})
		able := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
		serve(t, narrow)
		r := start(t, &able.Client, publish(t, &able.Client, single), nil, lifecycle.StartOptions{})
		time.Sleep(10 * time.Minute)
		if got := inspect(t, &able.Client, r.ID); got.Abandons != 0 || got.Attempts != 0 {
			t.Errorf("with the claim filter: abandons %d, attempts %d", got.Abandons, got.Attempts)
		}
		serve(t, lacking)
		time.Sleep(30 * time.Second)
		if got := inspect(t, &able.Client, r.ID); got.Abandons == 0 || got.Abandons >= 20 || got.Attempts != 0 || got.Status != run.Running {
			t.Errorf("abandons %d, attempts %d, %s", got.Abandons, got.Attempts, got.Status)
		}
		serve(t, able)
		// Both look for it: it may be handed back once more.
		if _, err := able.Await(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		}
	})
}

// Stopping while many nodes finish: what was acknowledged is stored, and nothing is left over.
func TestH14EveryResultAcknowledgedBeforeTheStopIsStored(t *testing.T) {
	const runs = 100
	for range 20 {
		store := memory.New(memory.Options{})
		gate := make(chan struct{})
		var entered atomic.Int64
		var acknowledged atomic.Int64
		all := make(chan struct{})
		e := newEngine(t, store, options{
			Concurrency: runs,
			Observe: func(d *run.Document, _ []run.Event) {
				if d.Status == run.Done {
					acknowledged.Add(1)
				}
			},
		}, act("work", func(context.Context) error {
			if entered.Add(1) == runs {
				close(all)
			}
			<-gate
			return nil
		}))
		shutdown := serve(t, e)
		ref := publish(t, &e.Client, single)
		for i := range runs {
			start(t, &e.Client, ref, nil, lifecycle.StartOptions{ID: fmt.Sprint(i)})
		}
		<-all
		close(gate)
		if err := shutdown(); err != nil {
			t.Fatal(err)
		}
		page, err := e.List(t.Context(), backend.Query{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		done := int64(0)
		for _, r := range page.Runs {
			if r.Status == run.Done {
				done++
			}
			if info := inspect(t, &e.Client, r.Run); !info.ClaimedAt.IsZero() || info.Attempts != 0 {
				t.Errorf("run %s is still held: %+v", r.Run, info)
			}
		}
		if done != acknowledged.Load() || done != runs {
			t.Fatalf("%d acknowledged, %d stored, want %d", acknowledged.Load(), done, runs)
		}
	}
}

func TestH14AThousandStartsAndStopsLeaveNothingBehind(t *testing.T) {
	store := memory.New(memory.Options{})
	work := act("work", func(context.Context) error { return nil })
	ref := publish(t, &newEngine(t, store, options{}, work).Client, single)
	for i := range 1000 {
		e := newEngine(t, store, options{}, work)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- e.Run(ctx) }()
		if i%10 == 0 {
			start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		}
		if i%2 == 0 {
			cancel()
		} else if err := e.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-over; err != nil && !errors.Is(err, lifecycle.ErrStopped) {
			t.Fatal(err)
		}
		cancel()
	}
} // TestMain looks for goroutines that are left
