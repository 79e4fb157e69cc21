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

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

// held is a store that hangs at an operation, before it takes effect, until it is let go.
func held(store backend.Store, hangs string) (s *faulty, hung *atomic.Int64, letGo func()) {
	gate := make(chan struct{})
	hung = new(atomic.Int64)
	return &faulty{Store: store, fail: func(op string, after bool) error {
		if op == hangs && !after {
			hung.Add(1)
			<-gate
		}
		return nil
	}}, hung, func() { close(gate) }
}

// A claim that is answered late is a note of what was: the run has ended meanwhile, or is another's.
func TestH1AnOldNoteOfAClaimRunsNothingAndChangesNothing(t *testing.T) {
	for _, tt := range []struct {
		name string
		ends bool
	}{{"the run has ended", true}, {"the run is another's", false}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const ttl = time.Minute
				inner := newMemory(nil)
				answered := make(chan struct{})
				late := &faulty{Store: inner, fail: func(op string, after bool) error {
					if op == "claim" && after {
						<-answered
					}
					return nil
				}}
				first := newEngine(t, late, options{TTL: ttl}, act("work", func(context.Context) error {
					t.Error("a node runs for a claim that is over")
					return nil
				}))
				goOn := make(chan struct{})
				second := newEngine(t, inner, options{TTL: ttl}, act("work", func(context.Context) error {
					if !tt.ends {
						<-goOn
					}
					return nil
				}))
				r := start(t, &second.Client, publish(t, &second.Client, single), nil, lifecycle.StartOptions{})
				sweep := background(t, first, t.Context())
				time.Sleep(ttl + time.Second)
				other := background(t, second, t.Context())
				before := inspect(t, &second.Client, r.ID)
				// The first finds the run again when it looks once more, and not its own note of it.
				answered <- struct{}{}
				synctest.Wait()
				if after := inspect(t, &second.Client, r.ID); after.Seq != before.Seq || after.Status != before.Status || !after.ClaimedAt.Equal(before.ClaimedAt) || after.Attempts != before.Attempts {
					t.Errorf("the run was %+v, and is %+v", before, after)
				}
				close(answered)
				close(goOn)
				if err := errors.Join(<-sweep, <-other); err != nil {
					t.Error(err)
				}
				wantStatus(t, inspect(t, &second.Client, r.ID), run.Done)
				if s := first.Stats(); s.LostClaims != 1 || s.Commits != 0 {
					t.Errorf("%+v, want one lost claim and no commit", s)
				}
			})
		})
	}
}

// Three engines freeze one after the other, in the commit of a node, the first after a commit that got through; the
// fourth ends the run. What the others then still send changes nothing.
func TestH2GenerationsOfFrozenWritersChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Minute
		inner := newMemory(nil)
		var letGo []func()
		var zombies []*lifecycle.Engine
		var over []<-chan error
		var id string
		for i := range 3 {
			gate := make(chan struct{})
			var commits atomic.Int64
			store := &faulty{Store: inner, fail: func(op string, after bool) error {
				if op == "commit" && !after {
					commits.Add(1)
				}
				// The first freezes in its second commit; from then on nothing gets through.
				frozen := commits.Load() > 1 || i > 0 && commits.Load() == 1
				if (op == "commit" || op == "refresh" || op == "release" || op == "fetch") && !after && frozen {
					<-gate
				}
				return nil
			}}
			e := newEngine(t, store, options{TTL: ttl}, act("work", func(context.Context) error { return nil }))
			if i == 0 {
				id = start(t, &e.Client, publish(t, &e.Client, chain(3)), nil, lifecycle.StartOptions{}).ID
			}
			zombies, letGo = append(zombies, e), append(letGo, func() { close(gate) })
			over = append(over, background(t, e, t.Context()))
			if got := inspect(t, &e.Client, id); got.Seq != 2 || got.ClaimedAt.IsZero() {
				t.Fatalf("generation %d: seq %d, claimed %v", i, got.Seq, got.ClaimedAt)
			}
			time.Sleep(ttl + time.Second)
		}
		last := newEngine(t, inner, options{TTL: ttl}, act("work", func(context.Context) error { return nil }))
		drain(t, last)
		before := inspect(t, &last.Client, id)
		wantStatus(t, before, run.Done)
		for i := range letGo {
			letGo[i]()
			if err := <-over[i]; err != nil {
				t.Error(err)
			}
		}
		after := inspect(t, &last.Client, id)
		if after.Seq != before.Seq || after.Attempts != 0 || !after.UpdatedAt.Equal(before.UpdatedAt) {
			t.Errorf("the run was at %d and is at %d", before.Seq, after.Seq)
		}
		for i, e := range zombies {
			want := int64(0)
			if i == 0 {
				want = 1
			}
			if s := e.Stats(); s.Commits != want || s.LostClaims != 1 || s.Releases != 0 {
				t.Errorf("generation %d: %+v, want %d commits and a lost claim", i, s, want)
			}
		}
	})
}

func TestH8EmptyAndOversizedIDsAreRefusedByEveryOperation(t *testing.T) {
	e := newEngine(t, newMemory(nil), options{}, act("work", func(context.Context) error { return nil }))
	ref := publish(t, &e.Client, single)
	ctx := t.Context()
	long, nul, broken := strings.Repeat("x", 256), "a\x00b", "a\xffb"
	of := func(c *lifecycle.Client, id string) map[string]error {
		_, inspected := c.Inspect(ctx, id)
		_, fetched := c.Fetch(ctx, id)
		_, listed := c.Events(ctx, id, backend.EventQuery{Limit: 1})
		_, awaited := c.Await(ctx, id)
		_, cancelled := c.Cancel(ctx, id, "")
		_, resolved := c.Resolve(ctx, id, "q", nil)
		_, freed := c.RetryPoisoned(ctx, id)
		return map[string]error{
			"Inspect": inspected, "Fetch": fetched, "Events": listed, "Await": awaited, "Cancel": cancelled, "Resolve": resolved, "RetryPoisoned": freed,
		}
	}
	refused := func(what string, errs map[string]error) {
		t.Helper()
		for op, err := range errs {
			if !errors.Is(err, backend.ErrInvalidArgument) {
				t.Errorf("%s of %s answers %v", op, what, err)
			}
		}
	}
	for _, id := range []string{"", long, nul, broken} {
		refused(fmt.Sprintf("run %.3q", id), of(&e.Client, id))
		refused(fmt.Sprintf("tenant %.3q", id), of(e.For(id), "r"))
		_, drained := e.Drain(ctx, lifecycle.DrainOptions{Runs: []string{id}})
		_, resolved := e.Resolve(ctx, "r", id, nil)
		_, started := e.For(id).Start(ctx, ref, nil, lifecycle.StartOptions{})
		errs := map[string]error{"Drain": drained, "Resolve's interrupt": resolved, "Start of a tenant": started}
		if id != "" { // which is for leaving it out
			_, errs["Start"] = e.Start(ctx, ref, nil, lifecycle.StartOptions{ID: id})
			_, errs["Start with a key"] = e.Start(ctx, ref, nil, lifecycle.StartOptions{Key: id})
			many, err := e.StartMany(ctx, ref, []lifecycle.NewRun{{StartOptions: lifecycle.StartOptions{ID: id}}})
			if err != nil {
				t.Fatal(err)
			}
			errs["StartMany"] = many[0].Err
		}
		refused(fmt.Sprintf("%.3q", id), errs)
	}
	if page, err := e.List(ctx, backend.Query{Limit: 10}); err != nil || len(page.Runs) != 0 {
		t.Errorf("%d runs are stored, %v", len(page.Runs), err)
	}
}

func TestH9OnePoisonedRunOfThreeHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Minute
		inner := newMemory(nil)
		var falls atomic.Bool
		falls.Store(true)
		work := act("work", func(context.Context) error { return nil })
		e := newEngine(t, inner, options{TTL: ttl, MaxAttempts: 2}, work)
		ref := publish(t, &e.Client, single)
		for _, id := range []string{"a", "b", "c"} {
			start(t, &e.Client, ref, nil, lifecycle.StartOptions{ID: id})
		}
		for range 2 { // processes that die with the middle one
			dead := &faulty{Store: inner, fail: func(op string, after bool) error {
				if op == "commit" || op == "release" || op == "refresh" {
					return backend.ErrClosed
				}
				return nil
			}}
			if _, err := newEngine(t, dead, options{TTL: ttl, MaxAttempts: 2}, work).Drain(t.Context(), lifecycle.DrainOptions{Runs: []string{"b"}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ttl + time.Second)
		}
		if d := drain(t, e); d.Poisons != 1 {
			t.Errorf("%+v, want one poison", d)
		}
		wantStatus(t, inspect(t, &e.Client, "a"), run.Done)
		wantStatus(t, inspect(t, &e.Client, "c"), run.Done)
		if _, err := e.Await(t.Context(), "b"); !errors.Is(err, lifecycle.ErrPoisoned) {
			t.Errorf("the middle one: %v", err)
		}
		for id, want := range map[string]error{"a": run.ErrInactiveRun, "b": nil, "c": run.ErrInactiveRun} {
			if _, err := e.RetryPoisoned(t.Context(), id); !errors.Is(err, want) {
				t.Errorf("recovering %s: %v", id, err)
			}
		}
		drain(t, e)
		wantStatus(t, inspect(t, &e.Client, "b"), run.Done)
	})
}

// A refresh that hangs arrives after the commit that keeps the claim.
func TestH10ADelayedRefreshBesideACommitMovesNoClaimBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Minute
		inner := newMemory(nil)
		store, hung, letGo := held(inner, "refresh")
		launches := 0
		e := newEngine(t, store, options{TTL: ttl}, act("work", func(context.Context) error {
			launches++
			time.Sleep(ttl / 2)
			return nil
		}))
		r := start(t, &e.Client, publish(t, &e.Client, chain(2)), nil, lifecycle.StartOptions{})
		over := background(t, e, t.Context())
		time.Sleep(ttl/2 + time.Second) // the first node's commit, with a refresh before it that hangs
		before := inspect(t, &e.Client, r.ID)
		if hung.Load() != 1 {
			t.Fatalf("%d refreshes hang, want one", hung.Load())
		}
		letGo()
		synctest.Wait()
		after := inspect(t, &e.Client, r.ID)
		if before.Seq != 2 || after.Seq != 2 || after.ClaimedAt.Before(before.ClaimedAt) {
			t.Errorf("seq %d and %d, claimed at %v and then %v", before.Seq, after.Seq, before.ClaimedAt, after.ClaimedAt)
		}
		if d := drain(t, newEngine(t, inner, options{TTL: ttl})); d.Claims != 0 {
			t.Errorf("another engine claims it: %+v", d)
		}
		if err := <-over; err != nil {
			t.Error(err)
		}
		wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
		if launches != 2 {
			t.Errorf("%d launches", launches)
		}
	})
}
