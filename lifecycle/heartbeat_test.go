package lifecycle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

// background drains on a goroutine of its own, until the channel it returns is closed.
func background(t *testing.T, e *lifecycle.Engine, ctx context.Context) <-chan error {
	over := make(chan error, 1)
	go func() {
		_, err := e.Drain(ctx, lifecycle.DrainOptions{})
		over <- err
	}()
	synctest.Wait()
	return over
}

func TestH3NodeOfThreeTTLsIsExecutedOnceBesideASecondClaimer(t *testing.T) {
	for _, tt := range []struct {
		name    string
		batched bool
	}{{"batched refreshes", true}, {"single refreshes", false}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const ttl = time.Minute
				var store backend.Store = newMemory(nil)
				if !tt.batched {
					store = &faulty{Store: store}
				}
				var launches atomic.Int64
				work := act("work", func(ctx context.Context) error {
					launches.Add(1)
					select {
					case <-time.After(3 * ttl):
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				})
				first := newEngine(t, store, options{TTL: ttl}, work)
				second := newEngine(t, store, options{TTL: ttl}, work)
				r := start(t, &first.Client, publish(t, &first.Client, single), nil, lifecycle.StartOptions{})
				over := background(t, first, t.Context())
				for inspect(t, &first.Client, r.ID).Status == run.Running {
					if d := drain(t, second); d.Claims+d.Poisons > 0 {
						t.Fatalf("the second claimer took the run: %+v", d)
					}
					time.Sleep(ttl / 20)
				}
				if err := <-over; err != nil {
					t.Fatal(err)
				}
				wantStatus(t, inspect(t, &first.Client, r.ID), run.Done)
				if n := launches.Load(); n != 1 {
					t.Errorf("executed %d times, want once", n)
				}
			})
		})
	}
}

func TestH3WithFailingHeartbeatsTheNodeEndsBeforeTheTTLAndItsResultIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Minute
		inner := newMemory(nil)
		cut := &faulty{Store: inner, fail: func(op string, _ bool) error {
			if op == "refresh" {
				return transient(op)
			}
			return nil
		}}
		began := time.Now()
		var cause error
		var after time.Duration
		first := newEngine(t, cut, options{TTL: ttl}, act("work", func(ctx context.Context) error {
			<-ctx.Done()
			cause, after = context.Cause(ctx), time.Since(began)
			return nil // completes all the same: that must not count
		}))
		var launched time.Duration
		second := newEngine(t, inner, options{TTL: ttl}, act("work", func(context.Context) error {
			launched = time.Since(began)
			return errors.New("the second executor's own failure")
		}))
		r := start(t, &first.Client, publish(t, &first.Client, single), nil, lifecycle.StartOptions{})
		if err := <-background(t, first, t.Context()); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(cause, lifecycle.ErrClaimLost) || after >= ttl || after < ttl/2 {
			t.Errorf("the context ended after %v with cause %v, want before the TTL with ErrClaimLost", after, cause)
		}
		if got := inspect(t, &first.Client, r.ID); got.Seq != 1 {
			t.Errorf("the first executor committed: seq %d", got.Seq)
		}
		if d := drain(t, second); d.Claims != 0 {
			t.Errorf("claimed before the TTL: %+v", d)
		}
		time.Sleep(ttl - time.Since(began) + time.Microsecond)
		drain(t, second)
		if launched <= ttl {
			t.Errorf("the second executor was launched after %v", launched)
		}
		wantStatus(t, inspect(t, &second.Client, r.ID), run.Failed)
		if s := first.Stats(); s.LostClaims != 1 || s.Commits != 0 {
			t.Errorf("stats of the first engine: %+v", s)
		}
	})
}

func TestHeartbeatsThatHangDoNotKeepAClaimBeyondItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Minute
		began := time.Now()
		cut := &faulty{Store: newMemory(nil), fail: func(op string, _ bool) error {
			if op == "refresh" {
				time.Sleep(time.Hour)
			}
			return nil
		}}
		var after time.Duration
		e := newEngine(t, cut, options{TTL: ttl}, act("work", func(ctx context.Context) error {
			<-ctx.Done()
			after = time.Since(began)
			return ctx.Err()
		}))
		start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		if err := <-background(t, e, t.Context()); err != nil {
			t.Fatal(err)
		}
		if after >= ttl {
			t.Errorf("the context ended after %v, the TTL is %v", after, ttl)
		}
		time.Sleep(2 * time.Hour) // the hanging call comes back
	})
}

func TestH2AndH15StolenAndCancelledRunsEndTheirNodesWithinOneHeartbeat(t *testing.T) {
	for _, tt := range []struct {
		name  string
		event func(t *testing.T, other *lifecycle.Engine, id string)
		cause error
	}{
		{
			"cancelled elsewhere",
			func(t *testing.T, other *lifecycle.Engine, id string) {
				if _, err := other.Cancel(t.Context(), id, "no more"); err != nil {
					t.Error(err)
				}
			},
			lifecycle.ErrRunCancelled,
		},
		{
			"stolen",
			func(t *testing.T, other *lifecycle.Engine, id string) {
				if d := drain(t, other); d.Claims != 1 {
					t.Errorf("not stolen: %+v", d)
				}
			},
			lifecycle.ErrClaimLost,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const ttl = time.Minute
				store := newMemory(nil)
				var cause error
				var ended time.Time
				first := newEngine(t, store, options{TTL: ttl}, act("work", func(ctx context.Context) error {
					<-ctx.Done()
					cause, ended = context.Cause(ctx), time.Now()
					return nil
				}))
				// A TTL of nothing makes every claim an expired one: a thief.
				other := newEngine(t, store, options{TTL: lifecycle.MinTTL}, act("work", func(context.Context) error { return nil }))
				r := start(t, &first.Client, publish(t, &first.Client, single), nil, lifecycle.StartOptions{})
				over := background(t, first, t.Context())
				time.Sleep(time.Second)
				began := time.Now()
				tt.event(t, other, r.ID)
				if err := <-over; err != nil {
					t.Fatal(err)
				}
				if !errors.Is(cause, tt.cause) {
					t.Errorf("cause %v, want %v", cause, tt.cause)
				}
				if took := ended.Sub(began); took > ttl/2 {
					t.Errorf("the node's context ended after %v", took)
				}
				got := inspect(t, &first.Client, r.ID)
				if !got.Status.Terminal() || got.Seq != 2 {
					t.Errorf("the run is %s at seq %d: the first engine's result must not count", got.Status, got.Seq)
				}
			})
		})
	}
}

func TestABackendThatPanicsInARefreshEndsTheClaimAndNotTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var causes []error
		store := &faulty{Store: newMemory(nil), fail: func(op string, _ bool) error {
			if op == "refresh" {
				panic("boom")
			}
			return nil
		}}
		e := newEngine(t, store, options{MaxAttempts: 1}, act("work", func(ctx context.Context) error {
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return nil
		}))
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		drain(t, e)
		if len(causes) != 1 || !errors.Is(causes[0], lifecycle.ErrClaimLost) {
			t.Errorf("the node's context ended with %v", causes)
		}
		wantStatus(t, inspect(t, &e.Client, r.ID), run.Running)
	})
}

// A claim whose answer comes late, or whose process was frozen before it began, is as good as
// another's.
func TestNothingBeginsUnderAClaimThatIsTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Minute
		late := true
		store := &faulty{Store: newMemory(nil), fail: func(op string, after bool) error {
			if op == "claim" && after && late {
				late = false
				time.Sleep(ttl * 11 / 12)
			}
			return nil
		}}
		var launches atomic.Int64
		e := newEngine(t, store, options{TTL: ttl}, act("work", func(context.Context) error { launches.Add(1); return nil }))
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		drain(t, e)
		if s := e.Stats(); launches.Load() != 0 || s.LostClaims != 1 {
			t.Errorf("%d launches, %+v", launches.Load(), s)
		}
		time.Sleep(ttl)
		drain(t, e)
		wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
	})
}

// deaf panics when it is listened to.
type deaf struct{ *memory.Store }

func (s deaf) Features() backend.Features {
	features := s.Store.Features()
	features.Wakes = s
	return features
}

func (deaf) Subscribe(context.Context) (<-chan struct{}, error) { panic("boom") }

func TestABackendThatPanicsWhereNobodyAsksDoesNotEndTheProcess(t *testing.T) {
	t.Run("when a claim is lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			inner := newMemory(nil)
			panics := false
			store := &faulty{Store: inner, fail: func(op string, _ bool) error {
				if op == "fetch" && panics {
					panic("boom")
				}
				return nil
			}}
			var cause error
			e := newEngine(t, store, options{TTL: time.Minute}, act("work", func(ctx context.Context) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return nil
			}))
			other := newEngine(t, inner, options{}, act("work", func(context.Context) error { return nil }))
			r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
			over := background(t, e, t.Context())
			panics = true
			if _, err := other.Cancel(t.Context(), r.ID, ""); err != nil {
				t.Fatal(err)
			}
			if err := <-over; err != nil || !errors.Is(cause, lifecycle.ErrClaimLost) {
				t.Errorf("Drain answers %v, the node's context ended with %v", err, cause)
			}
		})
	})
	t.Run("when a claim is released", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Store: newMemory(nil), fail: func(op string, _ bool) error {
				if op == "commit" || op == "release" {
					panic("boom")
				}
				return nil
			}}
			e := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
			r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
			drain(t, e)
			if got := inspect(t, &e.Client, r.ID); got.ClaimedAt.IsZero() {
				t.Errorf("%+v: want a claim that expires", got)
			}
		})
	})
	t.Run("when it is listened to", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := newEngine(t, deaf{newMemory(nil)}, options{}, act("work", func(context.Context) error { return nil }))
			serve(t, e)
			r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
			got, err := e.Await(t.Context(), r.ID)
			if err != nil {
				t.Fatal(err)
			}
			wantStatus(t, got, run.Done)
		})
	})
}
