package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// H20: what a retry cures is retried, once injected at every call; there is one effect.
func TestH20TroubleThatPassesIsNeitherSeenNorRepeated(t *testing.T) {
	for _, op := range []string{"insert", "claim", "graph", "fetch", "commit", "release", "mutate"} {
		for _, at := range []struct {
			name  string
			after bool
			err   func(string) error
		}{
			{"transient before", false, transient},
			{"unknown, nothing took effect", false, unknown},
			{"unknown, it took effect", true, unknown},
		} {
			if op == "claim" && at.after {
				continue // a batch whose answer was lost comes back when its claims expire
			}
			t.Run(op+" "+at.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					injected := 0
					armed := false
					store := &faulty{Store: newMemory(nil), fail: func(did string, after bool) error {
						if armed && did == op && after == at.after {
							armed = false
							injected++
							return at.err(op)
						}
						return nil
					}, features: func(f *backend.Features) { f.ClaimDocuments = nil }}
					launches := 0
					poll := act("poll", func(context.Context) error {
						launches++
						return nil
					})
					e := newEngine(t, store, options{}, ask, poll)
					ref := publish(t, &e.Client, asking)
					arm := func() { armed = true }
					arm()
					r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
					armed = armed && op != "insert"
					drain(t, e)
					armed = op == "mutate"
					if _, err := e.Resolve(t.Context(), r.ID, "q", "yes"); err != nil {
						t.Fatal(err)
					}
					if op == "release" {
						arm()
						ctx, cancel := context.WithCancel(t.Context())
						stop := &faulty{Store: store, fail: func(did string, after bool) error {
							if did == "claim" && after {
								cancel()
								synctest.Wait()
							}
							return nil
						}, features: store.features}
						_, _ = newEngine(t, stop, options{}, ask, poll).Drain(ctx, lifecycle.DrainOptions{})
					}
					drain(t, e)
					got := inspect(t, &e.Client, r.ID)
					wantStatus(t, got, run.Done)
					if lost := e.Stats().LostClaims; lost != 0 {
						t.Errorf("%d claims were taken for lost", lost)
					}
					if injected != 1 || launches != 1 || got.Seq != 4 {
						t.Errorf("%d faults injected, %d launches, seq %d: want 1, 1, 4", injected, launches, got.Seq)
					}
				})
			})
		}
	}
}

func TestCommitWhoseOutcomeStaysOpenIsLeftToWhoeverClaimsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newMemory(nil)
		cut := &faulty{Store: inner, fail: func(op string, after bool) error {
			if op == "commit" || op == "release" || op == "refresh" {
				return unknown(op)
			}
			return nil
		}}
		work := act("work", func(context.Context) error { return nil })
		e := newEngine(t, cut, options{TTL: time.Minute}, work)
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		began := time.Now()
		drain(t, e)
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("gave up after %v", took)
		}
		time.Sleep(2 * time.Minute)
		healthy := newEngine(t, inner, options{}, work)
		drain(t, healthy)
		wantStatus(t, inspect(t, &healthy.Client, r.ID), run.Done)
	})
}

func TestFenceThatMovedEndsTheVehicleQuietly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newMemory(nil)
		var log records
		var thief *lifecycle.Engine
		launches := 0
		work := act("work", func(context.Context) error {
			launches++
			if launches == 1 {
				time.Sleep(time.Second)
				drain(t, thief)
			}
			return nil
		})
		thief = newEngine(t, inner, options{TTL: lifecycle.MinTTL}, work)
		e := newEngine(t, inner, options{Logger: log.logger()}, work)
		r := start(t, &e.Client, publish(t, &e.Client, chain(2)), nil, lifecycle.StartOptions{})
		d := drain(t, e)
		wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
		if d.Commits != 0 || e.Stats().LostClaims != 1 || launches != 3 {
			t.Errorf("%+v, %+v, %d launches", d, e.Stats(), launches)
		}
		if strings.Contains(log.String(), "ERROR") {
			t.Errorf("a lost fence is no error:\n%s", log.String())
		}
	})
}

func TestCommitBudgetSendsALongRunBackToTheQueue(t *testing.T) {
	e := newEngine(t, newMemory(nil), options{CommitBudget: 3}, act("work", func(context.Context) error { return nil }))
	r := start(t, &e.Client, publish(t, &e.Client, chain(10)), nil, lifecycle.StartOptions{})
	d := drain(t, e)
	wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
	if d.Claims != 4 || d.Commits != 10 {
		t.Errorf("%+v, want 4 claims for 10 commits", d)
	}
}

// H26: one byte decides, the error is typed, nothing is cut.
func TestH26LimitsThroughTheEngine(t *testing.T) {
	const limit = 10_000
	type out struct {
		Text string `json:"text"`
	}
	for _, over := range []int{-1, 0, 1} {
		t.Run(fmt.Sprintf("a value of the limit %+d", over), func(t *testing.T) {
			size := limit + over - len(`""`)
			e := newEngine(t, newMemory(nil), options{Limits: value.Limits{Value: limit}},
				node.Of("work", 1, func(context.Context, none) (out, error) { return out{strings.Repeat("x", size)}, nil }))
			r := start(t, &e.Client, publish(t, &e.Client, `
id: big
fields: {text: {schema: {type: string}}}
nodes: {work: {use: work}}
edges: {in: {from: $start, to: work}, out: {from: work, to: $finish}}
`), nil, lifecycle.StartOptions{})
			drain(t, e)
			got := inspect(t, &e.Client, r.ID)
			if over <= 0 {
				wantStatus(t, got, run.Done)
				if n := len(got.Value("text")); n != limit+over {
					t.Errorf("the value has %d bytes: it was cut", n)
				}
				return
			}
			wantStatus(t, got, run.Failed)
			if got.Failure.Code != run.CodeTooLarge || got.Failure.Node != "work" {
				t.Errorf("failure %+v", got.Failure)
			}
		})
	}
	for _, limits := range []struct {
		name           string
		engine, memory value.Limits
	}{
		{"the engine's", value.Limits{Document: 4000, Value: 4000}, value.Limits{}},
		{"the backend's, when they are narrower", value.Limits{}, value.Limits{Document: 4000, Value: 4000}},
	} {
		t.Run("a document over the limit: "+limits.name, func(t *testing.T) {
			e := newEngine(t, memory.New(memory.Options{Limits: limits.memory}), options{Limits: limits.engine},
				node.Of("work", 1, func(context.Context, none) (out, error) { return out{strings.Repeat("x", 3900)}, nil }))
			r := start(t, &e.Client, publish(t, &e.Client, `
id: big
fields: {text: {schema: {type: string}}}
nodes: {work: {use: work}, again: {use: work}}
edges: {in: {from: $start, to: work}, on: {from: work, to: again}, out: {from: again, to: $finish}}
outputs: {text: {from: text}}
`), nil, lifecycle.StartOptions{})
			drain(t, e)
			got := inspect(t, &e.Client, r.ID)
			wantStatus(t, got, run.Failed)
			if got.Failure.Code != run.CodeTooLarge {
				t.Errorf("failure %+v", got.Failure)
			}
		})
	}
	t.Run("an error text over the limit of an event", func(t *testing.T) {
		e := newEngine(t, newMemory(nil), options{Limits: value.Limits{EventPayload: 1000}},
			act("work", func(context.Context) error { return errors.New(strings.Repeat("x", 2000)) }))
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		drain(t, e)
		got := inspect(t, &e.Client, r.ID)
		wantStatus(t, got, run.Failed)
		if strings.HasPrefix(got.Failure.Message, "xxx") {
			t.Error("the error text was cut")
		}
	})
}

// H28: two nodes ask under one id in the same superstep.
func TestH28TwinInterruptsFailTheRunByName(t *testing.T) {
	e := newEngine(t, newMemory(nil), options{}, ask)
	r := start(t, &e.Client, publish(t, &e.Client, `
id: twins
fields: {answer: {schema: {type: string}}}
nodes: {one: {use: ask}, two: {use: ask}}
edges: {a: {from: $start, to: one}, b: {from: $start, to: two}}
`), nil, lifecycle.StartOptions{})
	drain(t, e)
	got := inspect(t, &e.Client, r.ID)
	wantStatus(t, got, run.Failed)
	if got.Failure.Code != run.CodeInvalidAsk || !strings.Contains(got.Failure.Message, "id q ") {
		t.Errorf("failure %+v, want an invalid interrupt that names the id", got.Failure)
	}
}

// H34: a day passes at once.
func TestH34SleepOfADayInATestEndsAtOnce(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	e := newEngine(t, newMemory(clock), options{Clock: clock}, act("work", func(ctx context.Context) error {
		call, _ := node.FromContext(ctx)
		if until := call.PlannedAt.Add(24 * time.Hour); call.Now().Before(until) {
			return node.Snooze(until)
		}
		return nil
	}))
	r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
	began := time.Now()
	parked := drain(t, e)
	if want := epoch.Add(24 * time.Hour); !parked.Next.Equal(want) {
		t.Fatalf("due at %v, want %v", parked.Next, want)
	}
	clock.AdvanceTo(parked.Next.Add(-time.Microsecond))
	if d := drain(t, e); d.Claims != 0 {
		t.Errorf("woken too soon: %+v", d)
	}
	clock.AdvanceTo(parked.Next)
	drain(t, e)
	got := inspect(t, &e.Client, r.ID)
	wantStatus(t, got, run.Done)
	if got.FinishedAt.Sub(got.StartedAt) != 24*time.Hour || time.Since(began) > time.Minute {
		t.Errorf("finished after %v, in %v", got.FinishedAt.Sub(got.StartedAt), time.Since(began))
	}
}

func TestClaimThatIsNotDueByItsOwnTimersIsReleasedWithoutAnAttempt(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	store := newMemory(clock)
	e := newEngine(t, store, options{Clock: clock}, act("work", func(context.Context) error {
		return node.Snooze(epoch.Add(time.Hour))
	}))
	r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
	drain(t, e)
	clock.Advance(2 * time.Hour)
	// The backend's clock has gone back, as one may after a failover.
	early := &faulty{Store: store, features: func(f *backend.Features) {
		f.ClaimDocuments = earlier{f.ClaimDocuments, epoch.Add(30 * time.Minute)}
	}}
	behind := newEngine(t, early, options{Clock: clock}, act("work", func(context.Context) error {
		t.Error("executed before its time")
		return nil
	}))
	drain(t, behind)
	got := inspect(t, &e.Client, r.ID)
	if got.Attempts != 0 || !got.Wake.Equal(clock.Now().Add(30*time.Minute)) || got.Seq != 2 {
		t.Errorf("attempts %d, wake %v, seq %d: want released with refund for another half hour", got.Attempts, got.Wake, got.Seq)
	}
}

// earlier claims by a clock of its own.
type earlier struct {
	inner backend.ClaimDocuments
	now   time.Time
}

func (c earlier) ClaimDueDocuments(ctx context.Context, p claim.Policy) (backend.ClaimedBatch, error) {
	batch, err := c.inner.ClaimDueDocuments(ctx, p)
	batch.Now = c.now
	return batch, err
}

// H5: the documents of engines whose hosts' clocks disagree are as if they agreed.
func TestH5EnginesWithClocksTenMinutesApartKeepTheBackendsTime(t *testing.T) {
	truth := lifecycle.NewVirtualClock(epoch)
	store := newMemory(truth)
	work := act("work", func(ctx context.Context) error {
		call, _ := node.FromContext(ctx)
		if now := call.Now(); !now.Equal(truth.Now()) {
			t.Errorf("the node is told %v at %v", now, truth.Now())
		}
		if until := call.PlannedAt.Add(time.Hour); call.Now().Before(until) {
			return node.Snooze(until)
		}
		return nil
	})
	for _, apart := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		starter := newEngine(t, store, options{Clock: lifecycle.NewVirtualClock(epoch.Add(-apart))}, work)
		skewed := lifecycle.NewVirtualClock(truth.Now().Add(apart))
		driver := newEngine(t, store, options{Clock: skewed}, work)
		r := start(t, &starter.Client, publish(t, &starter.Client, single), nil, lifecycle.StartOptions{})
		if !r.StartedAt.Equal(truth.Now()) {
			t.Errorf("started at %v, the backend's clock says %v", r.StartedAt, truth.Now())
		}
		parked := drain(t, driver)
		if want := truth.Now().Add(time.Hour); !parked.Next.Equal(want) {
			t.Errorf("due at %v, want %v", parked.Next, want)
		}
		truth.AdvanceTo(parked.Next)
		drain(t, driver)
		got := inspect(t, &driver.Client, r.ID)
		wantStatus(t, got, run.Done)
		if !got.FinishedAt.Equal(truth.Now()) {
			t.Errorf("finished at %v, the backend's clock says %v", got.FinishedAt, truth.Now())
		}
	}
}

func TestDeadlineOfAnInterruptAnswersItInItsTime(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	e := newEngine(t, newMemory(clock), options{Clock: clock}, node.Of("ask", 1, func(ctx context.Context, _ none) (told, error) {
		answer, ok, err := node.Answered[string](ctx, "")
		if err == nil && !ok {
			err = node.Ask(node.Question{ID: "q", Deadline: epoch.Add(time.Hour), Default: "too late"})
		}
		return told{answer}, err
	}))
	r := start(t, &e.Client, publish(t, &e.Client, question), nil, lifecycle.StartOptions{})
	d := drain(t, e)
	if !d.Next.Equal(epoch.Add(time.Hour)) {
		t.Errorf("due at %v, want the deadline", d.Next)
	}
	asked, err := e.Await(t.Context(), r.ID)
	if err != nil || asked.Status != run.Running || !asked.NeedsAnswer() {
		t.Fatalf("awaited %v, %v: want a running run that needs an answer", asked, err)
	}
	clock.AdvanceTo(d.Next)
	drain(t, e)
	got := inspect(t, &e.Client, r.ID)
	wantStatus(t, got, run.Done)
	if string(got.Output) != `{"answer":"too late"}` {
		t.Errorf("output %s", got.Output)
	}
}

func TestMaxSuperstepsFailsACycle(t *testing.T) {
	launches := 0
	e := newEngine(t, newMemory(nil), options{}, act("work", func(context.Context) error { launches++; return nil }))
	r := start(t, &e.Client, publish(t, &e.Client, `
id: cycle
nodes: {work: {use: work}}
edges: {in: {from: $start, to: work}, again: {from: work, to: work}}
policies: {max_supersteps: 7}
`), nil, lifecycle.StartOptions{})
	drain(t, e)
	got := inspect(t, &e.Client, r.ID)
	wantStatus(t, got, run.Failed)
	if got.Failure.Code != run.CodeSupersteps || launches != 7 {
		t.Errorf("%+v after %d launches", got.Failure, launches)
	}
}
