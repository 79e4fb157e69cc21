package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

const question = `
id: question
fields: {answer: {schema: {type: string}}}
nodes: {ask: {use: ask}}
edges: {a: {from: $start, to: ask}}
outputs: {answer: {from: answer}}
`

func TestResolveAnswersAndTheRunGoesOn(t *testing.T) {
	e := newEngine(t, newMemory(nil), options{}, ask)
	r := start(t, &e.Client, publish(t, &e.Client, question), nil, lifecycle.StartOptions{})
	drain(t, e)
	wantStatus(t, inspect(t, &e.Client, r.ID), run.Waiting)
	got, err := e.Resolve(t.Context(), r.ID, "q", "yes")
	if err != nil {
		t.Fatal(err)
	}
	if got.Status != run.Running || got.Wake.IsZero() {
		t.Errorf("after the answer the run is %s, wake %v", got.Status, got.Wake)
	}
	drain(t, e)
	done := inspect(t, &e.Client, r.ID)
	wantStatus(t, done, run.Done)
	if string(done.Output) != `{"answer":"yes"}` {
		t.Errorf("output %s", done.Output)
	}
}

func TestResolveRefusesInTheDocumentedOrder(t *testing.T) {
	e := newEngine(t, newMemory(nil), options{}, ask)
	r := start(t, &e.Client, publish(t, &e.Client, question), nil, lifecycle.StartOptions{})
	drain(t, e)
	refused := func(what string, want error, id, interrupt string, answer any) {
		t.Helper()
		before := inspect(t, &e.Client, r.ID)
		if _, err := e.Resolve(t.Context(), id, interrupt, answer); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		if after := inspect(t, &e.Client, r.ID); after.Seq != before.Seq {
			t.Errorf("%s: the run was changed", what)
		}
	}
	refused("an unknown run", backend.ErrNotFound, "nobody", "q", "x")
	refused("an unknown interrupt", run.ErrNoInterrupt, r.ID, "p", "x")
	refused("an answer that does not fit", run.ErrInvalidAnswer, r.ID, "q", 7)
	refused("an answer that is no JSON", run.ErrInvalidAnswer, r.ID, "q", func() {})
	if _, err := e.Resolve(t.Context(), r.ID, "q", "yes"); err != nil {
		t.Fatal(err)
	}
	refused("a second answer", run.ErrAlreadyResolved, r.ID, "q", "no")
	drain(t, e)
	refused("a finished run", run.ErrInactiveRun, r.ID, "q", "no")
}

// H37: what a commit has decided, no later or repeated signal changes.
func TestH37DecidedStaysDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var branches []string
		store := newMemory(nil)
		types := []node.Type{
			ask,
			act("left", func(context.Context) error { branches = append(branches, "left"); return nil }),
			act("right", func(context.Context) error { branches = append(branches, "right"); return nil }),
		}
		e := newEngine(t, store, options{}, types...)
		r := start(t, &e.Client, publish(t, &e.Client, `
id: branching
fields: {answer: {schema: {type: string}}}
nodes: {ask: {use: ask}, left: {use: left}, right: {use: right}}
edges:
  a: {from: $start, to: ask}
  l: {from: ask, to: left, when: 'state.answer == "left"'}
  r: {from: ask, to: right, when: 'state.answer == "right"'}
`), nil, lifecycle.StartOptions{})
		drain(t, e)
		answered, err := e.Resolve(t.Context(), r.ID, "q", "left")
		if err != nil {
			t.Fatal(err)
		}
		decided, _ := run.Encode(answered.Document)
		if _, err := e.Resolve(t.Context(), r.ID, "q", "right"); !errors.Is(err, run.ErrAlreadyResolved) {
			t.Errorf("a second answer: %v", err)
		}
		if now, _ := run.Encode(inspect(t, &e.Client, r.ID).Document); !bytes.Equal(decided, now) {
			t.Error("a refused answer changed the document")
		}
		// The first superstep after the answer commits the branch; then its process falls.
		ctx, fall := context.WithCancel(t.Context())
		one := newEngine(t, store, options{Observe: func(*run.Document, []run.Event) { fall() }}, types...)
		if d, _ := one.Drain(ctx, lifecycle.DrainOptions{}); d.Commits != 1 {
			t.Fatalf("%+v, want one commit before the fall", d)
		}
		if _, err := e.Resolve(t.Context(), r.ID, "q", "right"); !errors.Is(err, run.ErrAlreadyResolved) {
			t.Errorf("an answer after the branch was taken: %v", err)
		}
		drain(t, e)
		wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
		if strings.Join(branches, " ") != "left" {
			t.Errorf("branches taken: %v, want left", branches)
		}
	})
}

func TestH18ResolveWhileASiblingWaitsForItsRetryWakesNothingAndLosesNothing(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	launches := 0
	e := newEngine(t, newMemory(clock), options{Clock: clock}, ask, act("poll", func(context.Context) error {
		launches++
		if launches == 1 {
			return errors.New("not yet")
		}
		return nil
	}))
	r := start(t, &e.Client, publish(t, &e.Client, `
id: asking
fields: {answer: {schema: {type: string}}}
nodes:
  ask: {use: ask}
  poll: {use: poll, retry: {max_attempts: 2, backoff: {initial: 1h}}}
edges: {a: {from: $start, to: ask}, b: {from: $start, to: poll}}
outputs: {answer: {from: answer}}
`), nil, lifecycle.StartOptions{})
	parked := drain(t, e).Next
	if parked.IsZero() || !parked.After(epoch.Add(40*time.Minute)) {
		t.Fatalf("the retry is due at %v", parked)
	}
	answered, err := e.Resolve(t.Context(), r.ID, "q", "kept")
	if err != nil {
		t.Fatal(err)
	}
	if !answered.Wake.Equal(parked) {
		t.Errorf("the answer moved the wake from %v to %v", parked, answered.Wake)
	}
	if d := drain(t, e); d.Claims != 0 || launches != 1 {
		t.Errorf("the answer woke the run before its retry: %+v", d)
	}
	clock.AdvanceTo(parked)
	drain(t, e)
	got := inspect(t, &e.Client, r.ID)
	wantStatus(t, got, run.Done)
	if string(got.Output) != `{"answer":"kept"}` || launches != 2 {
		t.Errorf("output %s after %d launches", got.Output, launches)
	}
}

func TestH19CancelLeavesNothingInWhateverStateTheRunIs(t *testing.T) {
	poll := act("poll", func(context.Context) error { return node.Snooze(epoch.Add(time.Hour)) })
	for _, tt := range []struct {
		name string
		opts lifecycle.StartOptions
		text string
		run  bool
	}{
		{"ready", lifecycle.StartOptions{}, asking, false},
		{"never due yet", lifecycle.StartOptions{At: epoch.Add(24 * time.Hour)}, asking, false},
		{"parked", lifecycle.StartOptions{}, asking, true},
		{"waiting", lifecycle.StartOptions{}, question, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock := lifecycle.NewVirtualClock(epoch)
			e := newEngine(t, newMemory(clock), options{Clock: clock}, ask, poll)
			r := start(t, &e.Client, publish(t, &e.Client, tt.text), nil, tt.opts)
			if tt.run {
				drain(t, e)
			}
			if _, err := e.Cancel(t.Context(), r.ID, "no more"); err != nil {
				t.Fatal(err)
			}
			got := inspect(t, &e.Client, r.ID)
			wantStatus(t, got, run.Cancelled)
			wantNothingLeft(t, got)
			if got.Reason != "no more" {
				t.Errorf("reason %q", got.Reason)
			}
			clock.Advance(48 * time.Hour)
			if d := drain(t, e); d.Claims != 0 {
				t.Errorf("a cancelled run was claimed: %+v", d)
			}
			again, err := e.Cancel(t.Context(), r.ID, "again")
			if err != nil || again.Seq != got.Seq || again.Reason != "no more" {
				t.Errorf("a second cancel: %v, reason %q", err, again.Reason)
			}
		})
	}
}

func TestH38CancelledRunStaysCancelledWhateverItsNodesInFlightDo(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(ctx context.Context) error
	}{
		{"completes", func(context.Context) error { return nil }},
		{"fails", func(context.Context) error { return errors.New("failed") }},
		{"fails for good", func(context.Context) error { return node.Permanent(errors.New("failed")) }},
		{"panics", func(context.Context) error { panic("boom") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var launches atomic.Int64
				var cause error
				e := newEngine(t, newMemory(nil), options{}, act("work", func(ctx context.Context) error {
					launches.Add(1)
					<-ctx.Done()
					cause = context.Cause(ctx)
					return tt.end(ctx)
				}))
				r := start(t, &e.Client, publish(t, &e.Client, chain(2)), nil, lifecycle.StartOptions{})
				over := background(t, e, t.Context())
				began := time.Now()
				if _, err := e.Cancel(t.Context(), r.ID, "no more"); err != nil {
					t.Fatal(err)
				}
				if err := <-over; err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != 0 || !errors.Is(cause, lifecycle.ErrRunCancelled) {
					t.Errorf("the node's context ended after %v with %v: want at once, the engine drives the run itself", took, cause)
				}
				got := inspect(t, &e.Client, r.ID)
				wantStatus(t, got, run.Cancelled)
				wantNothingLeft(t, got)
				if launches.Load() != 1 {
					t.Errorf("%d launches", launches.Load())
				}
			})
		})
	}
}

func TestResolveOfARunInFlightHereRevokesItsClaimAndTheStepIsPlannedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		e := newEngine(t, newMemory(nil), options{}, ask, act("poll", func(ctx context.Context) error {
			keys = append(keys, node.IdempotencyKey(ctx))
			switch len(keys) {
			case 1:
				return node.Snooze(time.Now().Add(time.Second))
			case 2:
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}))
		r := start(t, &e.Client, publish(t, &e.Client, asking), nil, lifecycle.StartOptions{})
		drain(t, e)
		time.Sleep(time.Second)
		over := background(t, e, t.Context())
		if _, err := e.Resolve(t.Context(), r.ID, "q", "meanwhile"); err != nil {
			t.Fatal(err)
		}
		if err := <-over; err != nil {
			t.Fatal(err)
		}
		drain(t, e)
		got := inspect(t, &e.Client, r.ID)
		wantStatus(t, got, run.Done)
		if len(keys) != 3 || keys[1] != keys[2] || string(got.Output) != `{"answer":"meanwhile"}` {
			t.Errorf("keys %v, output %s", keys, got.Output)
		}
	})
}

func TestSignalDoesNotEndAClaimThatWasTakenAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *lifecycle.Engine
		var over <-chan error
		store := &faulty{Store: newMemory(nil), fail: func(op string, after bool) error {
			if op == "mutate" && after {
				over = background(t, e, t.Context()) // before the signal's caller has its answer
			}
			return nil
		}}
		var cause error
		e = newEngine(t, store, options{}, node.Of("ask", 1, func(ctx context.Context, _ none) (told, error) {
			_, ok, err := node.Answered[string](ctx, "")
			if err == nil && !ok {
				return told{}, node.Ask(node.Question{ID: "q"})
			}
			time.Sleep(time.Second)
			cause = context.Cause(ctx)
			return told{}, err
		}))
		r := start(t, &e.Client, publish(t, &e.Client, question), nil, lifecycle.StartOptions{})
		drain(t, e)
		if _, err := e.Resolve(t.Context(), r.ID, "q", "yes"); err != nil {
			t.Fatal(err)
		}
		if err := <-over; err != nil || cause != nil {
			t.Errorf("drain: %v; the node's context ended with %v", err, cause)
		}
		wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
	})
}

func TestCancelWorksWhenTheGraphCannotBeLoaded(t *testing.T) {
	broken := false
	store := &faulty{Store: newMemory(nil), fail: func(op string, _ bool) error {
		if broken && op == "graph" {
			return backend.ErrCorruptGraph
		}
		return nil
	}}
	e := newEngine(t, store, options{}, ask)
	r := start(t, &e.Client, publish(t, &e.Client, question), nil, lifecycle.StartOptions{})
	drain(t, e)
	broken = true
	other := newEngine(t, store, options{})
	if _, err := other.Resolve(t.Context(), r.ID, "q", "x"); !errors.Is(err, backend.ErrCorruptGraph) {
		t.Errorf("resolve without a graph: %v", err)
	}
	if _, err := other.Cancel(t.Context(), r.ID, "unloadable"); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, inspect(t, &other.Client, r.ID), run.Cancelled)
}

func TestLostAnswerOfASignalIsResolvedByTheSameCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lose := 0
		store := &faulty{Store: newMemory(nil), fail: func(op string, after bool) error {
			if (op == "mutate" || op == "insert") && after && lose > 0 {
				lose--
				return unknown(op)
			}
			return nil
		}}
		var observed []int64
		e := newEngine(t, store, options{Observe: func(d *run.Document, _ []run.Event) { observed = append(observed, d.Seq) }}, ask)
		ref := publish(t, &e.Client, question)
		lose = 2
		r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{ID: "r"})
		drain(t, e)
		lose = 2
		if _, err := e.Resolve(t.Context(), r.ID, "q", "yes"); err != nil {
			t.Fatalf("resolve: %v", err)
		}
		lose = 2
		if got, err := e.Cancel(t.Context(), r.ID, "enough"); err != nil || got.Status != run.Cancelled {
			t.Fatalf("cancel: %v", err)
		}
		if got := inspect(t, &e.Client, r.ID); got.Seq != 4 {
			t.Errorf("seq %d, want 4: init, ask, answer, cancel, each once", got.Seq)
		}
		if fmt.Sprint(observed) != "[1 2 3 4]" {
			t.Errorf("observed %v, want each commit once, also those whose answer was lost", observed)
		}
	})
}

func TestRetryPoisonedFreesOnlyPoisonedRuns(t *testing.T) {
	e := newEngine(t, newMemory(nil), options{}, ask)
	r := start(t, &e.Client, publish(t, &e.Client, question), nil, lifecycle.StartOptions{})
	if got, err := e.RetryPoisoned(t.Context(), r.ID); err != nil || got.Seq != 1 {
		t.Errorf("a healthy run: %v", err)
	}
	if _, err := e.RetryPoisoned(t.Context(), "nobody"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("an unknown run: %v", err)
	}
	if _, err := e.Cancel(t.Context(), r.ID, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := e.RetryPoisoned(t.Context(), r.ID); !errors.Is(err, run.ErrInactiveRun) {
		t.Errorf("a finished run: %v", err)
	}
}

func TestResolveFollowsARunThatWasMigratedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mutations := 0
		store := &migrated{faulty: &faulty{Store: newMemory(nil), fail: func(op string, after bool) error {
			if op == "mutate" && !after {
				mutations++
			}
			return nil
		}}}
		e := newEngine(t, store, options{}, ask)
		store.before = publish(t, &e.Client, strings.Replace(question, "outputs: {answer", "outputs: {said", 1))
		r := start(t, &e.Client, publish(t, &e.Client, question), nil, lifecycle.StartOptions{})
		drain(t, e)
		began := time.Now()
		if _, err := e.Resolve(t.Context(), r.ID, "q", "yes"); err != nil {
			t.Fatal(err)
		}
		if mutations != 2 || time.Since(began) != 0 {
			t.Errorf("%d mutations in %v, want one for each version and no waiting", mutations, time.Since(began))
		}
	})
}

// migrated reads runs as they were before a migration.
type migrated struct {
	*faulty
	before graph.Ref
}

func (m *migrated) FetchRun(ctx context.Context, scope backend.Scope, id string) (*run.Document, error) {
	d, err := m.faulty.FetchRun(ctx, scope, id)
	if err == nil {
		old := *d
		old.Graph = m.before
		d = &old
	}
	return d, err
}
