package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

// triesFor is how long a store tries by itself before it answers with a failure.
const triesFor = 3 * time.Second

// awayStore is a store whose database is away, until it is told otherwise: it tries for a while by itself.
func awayStore(away *atomic.Bool, asked *atomic.Int64) *faulty {
	return &faulty{Store: newMemory(nil), fail: func(op string, after bool) error {
		if after || !away.Load() {
			return nil
		}
		asked.Add(1)
		time.Sleep(triesFor)
		return transient(op)
	}}
}

func TestHealthTellsOfTheFirstClaimThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		var asked atomic.Int64
		away.Store(true)
		e := newEngine(t, awayStore(&away, &asked), options{}, act("work", func(context.Context) error { return nil }))
		serve(t, e)
		time.Sleep(triesFor)
		synctest.Wait()
		if err := e.Health().Err; !errors.Is(err, errInjected) || asked.Load() != 1 {
			t.Errorf("Health tells %v after %d claims that failed, want why after the first", err, asked.Load())
		}
		away.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if err := e.Health().Err; err != nil {
			t.Errorf("Health tells %v of a backend that is back", err)
		}
	})
}

func TestCallersOfABackendThatTriesForLongItselfWaitNoLongerThanThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		var asked atomic.Int64
		e := newEngine(t, awayStore(&away, &asked), options{}, act("work", func(context.Context) error { return nil }))
		ref := publish(t, &e.Client, single)
		r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		away.Store(true)
		for name, call := range map[string]func() error{
			"Fetch":  func() error { _, err := e.Fetch(t.Context(), r.ID); return err },
			"Start":  func() error { _, err := e.Start(t.Context(), ref, nil, lifecycle.StartOptions{}); return err },
			"Cancel": func() error { _, err := e.Cancel(t.Context(), r.ID, ""); return err },
		} {
			began := time.Now()
			err := call()
			if took := time.Since(began); !errors.Is(err, errInjected) || took != triesFor {
				t.Errorf("%s answers %v after %v, want the failure after %v", name, err, took, triesFor)
			}
		}
	})
}

func TestACallersContextEndsItsRepetitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := false
		e := newEngine(t, &faulty{Store: newMemory(nil), fail: func(op string, _ bool) error {
			if broken {
				return transient(op)
			}
			return nil
		}}, options{}, act("work", func(context.Context) error { return nil }))
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		broken = true
		const patience = 20 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		began := time.Now()
		_, err := e.Fetch(ctx, r.ID)
		if took := time.Since(began); !errors.Is(err, errInjected) || took != patience {
			t.Errorf("Fetch answers %v after %v, want the failure after %v", err, took, patience)
		}
	})
}

// warnings counts the records of level warning and above that say something.
func warnings(log *records, says string) (n int) {
	for line := range strings.Lines(log.String()) {
		if (strings.Contains(line, `"WARN"`) || strings.Contains(line, `"ERROR"`)) && strings.Contains(line, says) {
			n++
		}
	}
	return n
}

func TestOneOutageIsOneWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		var asked atomic.Int64
		var log records
		e := newEngine(t, awayStore(&away, &asked), options{Logger: log.logger(), Concurrency: 4}, act("work", func(ctx context.Context) error {
			select {
			case <-time.After(30 * time.Second):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}))
		serve(t, e)
		ref := publish(t, &e.Client, single)
		var ids []string
		for range 3 {
			ids = append(ids, start(t, &e.Client, ref, nil, lifecycle.StartOptions{}).ID)
		}
		for outage := 1; outage <= 2; outage++ {
			time.Sleep(time.Second)
			away.Store(true)
			time.Sleep(5 * time.Minute) // claims, refreshes and releases fail
			away.Store(false)
			time.Sleep(time.Minute)
			if n := warnings(&log, ""); n != outage {
				t.Fatalf("%d warnings after %d outages:\n%s", n, outage, log.String())
			}
			if n := strings.Count(log.String(), "does again what"); n != outage {
				t.Errorf("%d ends of %d outages are told", n, outage)
			}
		}
		for _, id := range ids {
			if _, err := e.Await(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
	})
}

// A host that starves, or a database that is away for a while, costs no attempt.
func TestARunThatIsGivenUpBecauseItsClaimCouldNotBeRefreshedGetsItsAttemptBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Minute
		starving := 3
		store := &faulty{Store: newMemory(nil), fail: func(op string, _ bool) error {
			if op == "refresh" && starving > 0 {
				return transient(op)
			}
			return nil
		}}
		e := newEngine(t, store, options{TTL: ttl, MaxAttempts: 1}, act("work", func(ctx context.Context) error {
			select {
			case <-time.After(2 * ttl):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}))
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		for ; starving > 0; starving-- {
			claimed := time.Now()
			drain(t, e)
			got := inspect(t, &e.Client, r.ID)
			if got.Attempts != 0 || got.Wake.IsZero() || got.Wake.Before(claimed.Add(ttl)) {
				t.Errorf("attempts %d, wake %v: want the run back with its attempt, due when its claim would have expired (%v)", got.Attempts, got.Wake, claimed.Add(ttl))
			}
			time.Sleep(time.Until(got.Wake))
		}
		drain(t, e)
		wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
	})
}

// Whatever starves its host every time, and is relaunched for ever, would be as bad as what kills it.
func TestARunThatIsGivenUpAgainAndAgainIsPoisonedInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: newMemory(nil), fail: func(op string, _ bool) error {
			if op == "refresh" {
				return transient(op)
			}
			return nil
		}}
		launches := 0
		e := newEngine(t, store, options{MaxAttempts: 2, MaxAbandons: 3}, act("work", func(ctx context.Context) error {
			launches++
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		for range 10 {
			drain(t, e)
			time.Sleep(2 * time.Minute)
		}
		got := inspect(t, &e.Client, r.ID)
		if launches != 5 || got.Poison.Reason != claim.MaxAttemptsExceeded {
			t.Errorf("%d launches, poison %+v: want three that are given back, two that count, and then none", launches, got.Poison)
		}
	})
}

func TestACommitEndsTheRowOfGivenUpClaims(t *testing.T) {
	for name, budget := range map[string]int{"under the same claim": 100, "under the claim before": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &faulty{Store: newMemory(nil), fail: func(op string, _ bool) error {
					if op == "refresh" {
						return transient(op)
					}
					return nil
				}}
				launches := 0
				e := newEngine(t, store, options{MaxAttempts: 1, MaxAbandons: 1, CommitBudget: budget}, act("work", func(ctx context.Context) error {
					if launches++; launches%2 == 1 {
						<-ctx.Done() // both nodes are given up once
					}
					return context.Cause(ctx)
				}))
				r := start(t, &e.Client, publish(t, &e.Client, `
id: twice
nodes: {a: {use: work}, b: {use: work}}
edges: {i: {from: $start, to: a}, ab: {from: a, to: b}}
`), nil, lifecycle.StartOptions{})
				for range 3 {
					drain(t, e)
					time.Sleep(2 * time.Minute)
				}
				if got := inspect(t, &e.Client, r.ID); got.Status != run.Done || launches != 4 {
					t.Errorf("%s after %d launches, poison %+v", got.Status, launches, got.Poison)
				}
			})
		})
	}
}

// What a thief has is never disturbed by who gives up late.
func TestAClaimThatAnotherHasIsNotDisturbedByWhoGivesItUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Minute
		inner := newMemory(nil)
		store := &faulty{Store: inner, fail: func(op string, _ bool) error {
			if op == "refresh" {
				return transient(op)
			}
			return nil
		}}
		var taken time.Time
		slow := newEngine(t, store, options{TTL: ttl, NodeGrace: time.Hour}, act("work", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(3 * ttl) // it does not return until another has the run
			return nil
		}))
		thief := newEngine(t, inner, options{TTL: ttl}, act("work", func(ctx context.Context) error {
			taken = time.Now()
			time.Sleep(4 * ttl)
			return context.Cause(ctx)
		}))
		r := start(t, &slow.Client, publish(t, &slow.Client, single), nil, lifecycle.StartOptions{})
		over := background(t, slow, t.Context())
		time.Sleep(ttl + time.Second)
		stolen := background(t, thief, t.Context())
		if err := <-over; err != nil {
			t.Fatal(err)
		}
		if got := inspect(t, &slow.Client, r.ID); taken.IsZero() || got.ClaimedAt.IsZero() || got.Attempts != 2 {
			t.Errorf("claimed at %v, attempts %d: want the thief's second claim as it was", got.ClaimedAt, got.Attempts)
		}
		if err := <-stolen; err != nil {
			t.Fatal(err)
		}
		wantStatus(t, inspect(t, &slow.Client, r.ID), run.Done)
	})
}
