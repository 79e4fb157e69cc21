package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

func TestH13ShutdownInTheMiddleOfANodeHandsTheRunOnUnharmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(nil)
		var cause error
		first := newEngine(t, store, options{ShutdownTimeout: 10 * time.Second}, act("work", func(ctx context.Context) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		}))
		second := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
		r := start(t, &first.Client, publish(t, &first.Client, single), nil, lifecycle.StartOptions{})
		ctx, sigterm := context.WithCancel(t.Context())
		over := background(t, first, ctx)
		began := time.Now()
		sigterm()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("Drain answers %v, want the end of its context", err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the shutdown took %v, want the timeout of 10s", took)
		}
		if !errors.Is(cause, lifecycle.ErrShutdown) {
			t.Errorf("the node's context ended with %v, want ErrShutdown", cause)
		}
		got := inspect(t, &first.Client, r.ID)
		if got.Status != run.Running || got.Attempts != 0 || got.Wake.IsZero() || got.Wake.After(time.Now()) {
			t.Errorf("the run is %s, attempts %d, wake %v: want running, due at once, no attempt used up", got.Status, got.Attempts, got.Wake)
		}
		drain(t, second)
		wantStatus(t, inspect(t, &second.Client, r.ID), run.Done)
	})
}

func TestH13ShutdownLetsANodeReachItsCommitAndReleasesWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(nil)
		var launches atomic.Int64
		e := newEngine(t, store, options{ShutdownTimeout: 10 * time.Second}, act("work", func(ctx context.Context) error {
			launches.Add(1)
			time.Sleep(5 * time.Second)
			return ctx.Err()
		}))
		r := start(t, &e.Client, publish(t, &e.Client, chain(2)), nil, lifecycle.StartOptions{})
		ctx, sigterm := context.WithCancel(t.Context())
		over := background(t, e, ctx)
		sigterm()
		<-over
		got := inspect(t, &e.Client, r.ID)
		if got.Seq != 2 || got.Wake.IsZero() || !got.ClaimedAt.IsZero() || launches.Load() != 1 || e.Stats().Releases != 0 {
			t.Errorf("seq %d, wake %v, claimed at %v, %d launches: want the first node's commit, released with it", got.Seq, got.Wake, got.ClaimedAt, launches.Load())
		}
	})
}

func TestShutdownKeepsWhatFinishesWithinTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, newMemory(nil), options{ShutdownTimeout: time.Second}, act("work", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil // it came to its end all the same
		}))
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		ctx, sigterm := context.WithCancel(t.Context())
		over := background(t, e, ctx)
		sigterm()
		<-over
		wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
	})
}

func TestShutdownLeavesBehindANodeThatIgnoresItAndItsResultNeverCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(nil)
		var log records
		first := newEngine(t, store, options{ShutdownTimeout: time.Second, NodeGrace: 5 * time.Second, Logger: log.logger()}, act("work", stubborn))
		second := newEngine(t, store, options{}, act("work", func(context.Context) error { return errors.New("failed elsewhere") }))
		r := start(t, &first.Client, publish(t, &first.Client, single), nil, lifecycle.StartOptions{})
		ctx, sigterm := context.WithCancel(t.Context())
		over := background(t, first, ctx)
		began := time.Now()
		sigterm()
		<-over
		if took := time.Since(began); took != 6*time.Second {
			t.Errorf("the shutdown took %v, want timeout and grace, 6s", took)
		}
		if s := first.Stats(); s.StuckNodes != 1 || s.LateResults != 0 {
			t.Errorf("stats %+v, want one stuck node", s)
		}
		if !strings.Contains(log.String(), "lifecycle_test.stubborn") {
			t.Errorf("the log does not show where the node hangs:\n%s", log.String())
		}
		if got := inspect(t, &first.Client, r.ID); got.Attempts != 0 || got.Wake.IsZero() {
			t.Errorf("attempts %d, wake %v", got.Attempts, got.Wake)
		}
		drain(t, second)
		time.Sleep(2 * time.Hour) // the node returns at last
		synctest.Wait()
		if s := first.Stats(); s.LateResults != 1 || s.Commits != 0 {
			t.Errorf("stats %+v, want one late result and no commit", s)
		}
		wantStatus(t, inspect(t, &second.Client, r.ID), run.Failed)
	})
}

// stubborn is a node that ignores its context.
func stubborn(context.Context) error {
	time.Sleep(time.Hour)
	return nil
}

func TestDrainWithAnEndedContextClaimsNothing(t *testing.T) {
	store := newMemory(nil)
	e := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
	r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if d, err := e.Drain(ctx, lifecycle.DrainOptions{}); !errors.Is(err, context.Canceled) || d.Claims != 0 {
		t.Errorf("Drain answers %+v, %v", d, err)
	}
	if got := inspect(t, &e.Client, r.ID); got.Seq != 1 || got.Attempts != 0 {
		t.Errorf("the run was touched: seq %d, attempts %d", got.Seq, got.Attempts)
	}
}

func TestShutdownReleasesWhatWasClaimedButHasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, sigterm := context.WithCancel(t.Context())
		store := &faulty{Store: newMemory(nil), fail: func(op string, after bool) error {
			if op == "claim" && after {
				sigterm()
				synctest.Wait()
			}
			return nil
		}}
		e := newEngine(t, store, options{}, act("work", func(context.Context) error {
			t.Error("a node began during a shutdown")
			return nil
		}))
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		over := make(chan struct{})
		go func() {
			defer close(over)
			_, _ = e.Drain(ctx, lifecycle.DrainOptions{})
		}()
		<-over
		if got := inspect(t, &e.Client, r.ID); got.Attempts != 0 || got.Wake.IsZero() {
			t.Errorf("attempts %d, wake %v: want released with refund", got.Attempts, got.Wake)
		}
	})
}

// A commit that gets no answer is not the run's fault: who shuts down hands the run on, whatever
// became of it.
func TestH13ShutdownWhileACommitIsUnansweredUsesUpNoAttempt(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprintf("applied %v", applied), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newMemory(nil)
				store := &faulty{Store: inner, fail: func(op string, after bool) error {
					if op == "commit" && after == applied {
						return unknown(op)
					}
					return nil
				}}
				work := act("work", func(context.Context) error { return nil })
				e := newEngine(t, store, options{ShutdownTimeout: 10 * time.Second}, work)
				r := start(t, &e.Client, publish(t, &e.Client, chain(2)), nil, lifecycle.StartOptions{})
				ctx, sigterm := context.WithCancel(t.Context())
				over := background(t, e, ctx)
				sigterm()
				<-over
				got := inspect(t, &e.Client, r.ID)
				if got.Attempts != 0 || got.Wake.IsZero() || got.Wake.After(time.Now()) {
					t.Errorf("attempts %d, wake %v: want none used up, due at once", got.Attempts, got.Wake)
				}
				other := newEngine(t, inner, options{}, work)
				drain(t, other)
				wantStatus(t, inspect(t, &other.Client, r.ID), run.Done)
			})
		})
	}
}
