package belaytest

import (
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// maxWakes bounds how often one Advance or Rest moves the clock to a wake.
const maxWakes = 10_000

// Quiet drives everything that is due until nothing is, without any time passing.
//
// A node that waits for its own deadline waits for the clock, which nobody moves meanwhile: test
// timeouts of nodes with testing/synctest, or move the clock in the node.
func (e *Engine) Quiet() belay.Drained {
	e.t.Helper()
	d, err := e.Drain(e.t.Context(), belay.DrainOptions{})
	if err != nil {
		e.t.Fatalf("belaytest: %v", err)
	}
	return d
}

// Advance lets d pass: it drives what is due, moves the clock to the next instant at which a run becomes
// due, drives that, and so on. Every timer is met at its own instant.
func (e *Engine) Advance(d time.Duration) {
	e.t.Helper()
	e.virtual()
	until := e.Clock.Now().Add(d)
	for range e.wakes {
		e.Quiet()
		next := e.nextWake()
		if next.IsZero() || next.After(until) {
			e.Clock.AdvanceTo(until)
			return
		}
		e.Clock.AdvanceTo(next)
	}
	e.t.Fatalf("belaytest: %d timers went off within %v, and there are more: is there a loop?", e.wakes, d)
}

// Rest lets time pass until nothing more will happen to the run by itself: it is finished, needs an
// answer, or is poisoned. A run that comes to no rest fails the test. It answers the run as it is then.
func (e *Engine) Rest(id string) *belay.Run {
	e.t.Helper()
	e.virtual()
	for range e.wakes {
		e.Quiet()
		r := e.MustInspect(id)
		if r.Status.Terminal() || r.NeedsAnswer() || !r.Poison.At.IsZero() {
			return r
		}
		next := e.nextWake()
		if next.IsZero() {
			e.t.Fatalf("belaytest: run %s is %s, and nothing is going to happen to it", id, r.Status)
		}
		e.Clock.AdvanceTo(next)
	}
	e.t.Fatalf("belaytest: run %s came to no rest in %d wakes", id, e.wakes)
	return nil
}

func (e *Engine) virtual() {
	e.t.Helper()
	if e.Clock == nil {
		e.t.Fatal("belaytest: the engine's clock is not a virtual one, so the test cannot move it: leave Config.Clock out, or use testing/synctest and sleep")
	}
}

// nextWake is the next instant at which a run of any owner becomes due, also by the end of a claim
// that nobody keeps; zero: none.
func (e *Engine) nextWake() (next time.Time) {
	e.t.Helper()
	now := e.Clock.Now()
	consider := func(at time.Time) {
		if at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	q := backend.Query{Statuses: []run.Status{run.Running}, Limit: backend.MaxLimit}
	for {
		page, err := e.Store.ListRuns(e.t.Context(), backend.System(), q)
		if err != nil {
			e.t.Fatalf("belaytest: listing runs: %v", err)
		}
		for _, s := range page.Runs {
			consider(s.Wake)
			if !s.ClaimedAt.IsZero() {
				consider(s.ClaimedAt.Add(e.ttl + time.Microsecond))
			}
		}
		if !page.HasMore {
			return next
		}
		q.Before = page.Next
	}
}
