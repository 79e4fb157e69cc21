package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

// await awaits on a goroutine of its own.
func await(c *lifecycle.Client, ctx context.Context, id string) <-chan awaited {
	out := make(chan awaited, 1)
	go func() {
		r, err := c.Await(ctx, id)
		out <- awaited{r, err, time.Now()}
	}()
	synctest.Wait()
	return out
}

type awaited struct {
	run *lifecycle.Run
	err error
	at  time.Time
}

func TestAwaitEndsAtOnceWithTheCommitThatEndsTheRun(t *testing.T) {
	for _, tt := range []struct {
		name   string
		store  func() backend.Store
		within time.Duration
	}{
		{"told by the backend", func() backend.Store { return newMemory(nil) }, 0},
		{"by polling", func() backend.Store {
			return &faulty{Store: newMemory(nil), features: func(f *backend.Features) { f.Wakes = nil }}
		}, time.Second},
	} {
		for _, here := range []bool{true, false} {
			name := tt.name + ", driven elsewhere"
			within := tt.within
			if here {
				name, within = tt.name+", driven here", 0
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := tt.store()
					var done time.Time
					work := act("work", func(context.Context) error {
						time.Sleep(10 * time.Second)
						done = time.Now()
						return nil
					})
					e := newEngine(t, store, options{}, work)
					driver := e
					if !here {
						driver = newEngine(t, store, options{}, work)
					}
					r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
					got := await(&e.Client, t.Context(), r.ID)
					drain(t, driver)
					a := <-got
					if a.err != nil {
						t.Fatal(a.err)
					}
					wantStatus(t, a.run, run.Done)
					if late := a.at.Sub(done); late > within {
						t.Errorf("told %v after the commit", late)
					}
				})
			})
		}
	}
}

func TestAwaitEndsWhenTheRunNeedsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, newMemory(nil), options{}, ask)
		r := start(t, &e.Client, publish(t, &e.Client, question), nil, lifecycle.StartOptions{})
		got := await(&e.Client, t.Context(), r.ID)
		drain(t, e)
		if a := <-got; a.err != nil || a.run.Status != run.Waiting || len(a.run.OpenInterrupts()) != 1 {
			t.Errorf("awaited %+v, %v", a.run, a.err)
		}
	})
}

func TestAwaitEndsWithItsContextAndTellsWhatItSaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, newMemory(nil), options{}, ask)
		r := start(t, &e.Client, publish(t, &e.Client, question), nil, lifecycle.StartOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := e.Await(ctx, r.ID)
		if !errors.Is(err, context.DeadlineExceeded) || got == nil || got.ID != r.ID {
			t.Errorf("Await answers %v, %v", got, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if got, err := e.Await(ended, r.ID); !errors.Is(err, context.Canceled) || got != nil {
			t.Errorf("with an ended context: %v, %v", got, err)
		}
	})
}

func TestAwaitOfAnUnknownRunIsNotFound(t *testing.T) {
	e := newEngine(t, newMemory(nil), options{})
	if _, err := e.Await(t.Context(), "nobody"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

func TestManyMayAwaitOneRunAndNothingIsLeftOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(nil)
		e := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
		other := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
		ref := publish(t, &e.Client, single)
		r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		var all []<-chan awaited
		for range 100 {
			all = append(all, await(&e.Client, t.Context(), r.ID))
		}
		drain(t, other)
		for _, got := range all {
			if a := <-got; a.err != nil || a.run.Status != run.Done {
				t.Fatalf("%v, %v", a.run, a.err)
			}
		}
	})
}
