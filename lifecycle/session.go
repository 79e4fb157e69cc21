package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
)

// claimLimit bounds one batch.
const claimLimit = 1000

// session is one stretch of claiming, with its own slots. Goroutines of its own drive what was
// claimed: each goes on with the next vehicle when one is done, and claims for the free slots when no
// vehicle is left or half the slots are free. One claim is in flight at a time, and what is asked meanwhile
// makes one more. A drain is over once nothing is due; a session with a dispatcher stays until it is shut down.
type session struct {
	engine *Engine
	filter claim.Filter
	// dispatcher says when an open session claims; nil for a drain, which claims until it
	// finds nothing.
	dispatcher *dispatcher
	committer  *committer
	// io is the context of what the session asks of the backend. A shutdown ends it last, so
	// that commits and releases get through.
	io    context.Context
	endIO context.CancelFunc
	over  event // set once nothing is held and nothing more is claimed

	ctx context.Context // its end is a shutdown

	mu       sync.Mutex
	stopped  bool
	cutting  bool
	closed   bool
	active   int        // vehicles that were claimed and have not finished
	queue    []*vehicle // those of them that nobody drives yet
	called   bool       // a goroutine is on its way to take one
	resting  []*worker  // those that found nothing to do
	claiming bool
	asked    int  // slots that the claim in flight may fill
	again    bool // something may be due that no claim has looked for
	short    bool // the last claim found less than it asked for
	ended    bool // nothing is claimed any more
	dry      bool // because nothing was due
	prefer   claim.Class
	failure  error // of claiming, for good
	done     Drained
	wakes    map[string]time.Time // of runs left unfinished
	parks    map[string]int       // of a drain: how often in a row a run was parked and due at once
	mayPark  int
	stopLast func() bool
}

func newSession(ctx context.Context, e *Engine, filter claim.Filter) *session {
	s := &session{engine: e, ctx: ctx, filter: filter, over: e.scheduler.NewEvent(), prefer: claim.Ready, wakes: map[string]time.Time{}, parks: map[string]int{}, again: true}
	s.io, s.endIO = context.WithCancel(context.Background())
	s.committer = newCommitter(e, s.io)
	return s
}

// worker is a goroutine of a session. Without anything to do it rests until it is called, so that its
// stack has grown already when it drives the next run.
type worker struct {
	name    goroutine
	vehicle *vehicle // what it is called for; nil: whatever there is
	called  event
}

// maxResting bounds the workers that rest.
const maxResting = 256

// call has a worker drive a vehicle, or without one whatever there is. The caller holds the lock.
func (s *session) call(v *vehicle) {
	if n := len(s.resting); n > 0 {
		w := s.resting[n-1]
		s.resting = s.resting[:n-1]
		w.vehicle = v
		w.called.Set()
		return
	}
	s.engine.scheduler.Go(func() { s.serve(v) })
}

// serve is a worker's life.
func (s *session) serve(v *vehicle) {
	w := &worker{name: currentGoroutine(), vehicle: v, called: s.engine.scheduler.NewEvent()}
	for {
		if w.vehicle == nil {
			s.mu.Lock()
			s.called = false
			s.mu.Unlock()
		}
		s.work(w.name, w.vehicle)
		if !s.rest(w) {
			return
		}
	}
}

// rest waits until the worker is called. It reports false when there is nothing to wait for.
func (s *session) rest(w *worker) bool {
	s.mu.Lock()
	if s.ended || len(s.resting) == maxResting {
		s.mu.Unlock()
		return false
	}
	w.vehicle = nil
	s.resting = append(s.resting, w)
	s.mu.Unlock()
	w.called.Wait()
	return true
}

// dismiss ends the workers that rest. The caller holds the lock.
func (s *session) dismiss() {
	for _, w := range s.resting {
		w.called.Set()
	}
	s.resting = nil
}

// work drives a vehicle, and then whatever else there is, until there is nothing for this
// goroutine. Without a vehicle it begins by claiming.
func (s *session) work(here goroutine, v *vehicle) {
	if v == nil {
		v = s.next()
	}
	for v != nil {
		v.goroutine = here
		s.shield(v, v.drive)
		if !v.over() {
			return // whoever has the baton now goes on here too
		}
		v = s.next()
	}
}

// carryOn is what the last of a superstep does, when it was not the goroutine that began it.
func (s *session) carryOn(v *vehicle) {
	here := currentGoroutine()
	v.goroutine = here
	s.shield(v, func() {
		if v.settle() {
			v.advance()
		}
	})
	if v.over() {
		s.work(here, nil)
	}
}

// shield keeps a panic in belay's own code, or in an expression library, from ending the
// host's process: the run is given back, and poisoned when it happens every time.
func (s *session) shield(v *vehicle, drive func()) {
	defer func() {
		if r := recover(); r != nil {
			v.broken(fmt.Errorf("belay: driving the run panicked: %s\n%s", panicText(r), debug.Stack()))
		}
	}()
	drive()
}

// take is the vehicle that has waited longest, nil when none waits. Whoever takes one calls a
// goroutine for what there is to do besides, so that nothing waits for a node; one that is not there
// yet is enough, since it does the same. The caller holds the lock.
func (s *session) take() *vehicle {
	if len(s.queue) == 0 {
		return nil
	}
	v := s.queue[0]
	s.queue[0] = nil
	s.queue = s.queue[1:]
	if len(s.queue) > 0 || !s.claiming && s.claims() {
		s.callAnother()
	}
	return v
}

// free is how many slots are. The caller holds the lock.
func (s *session) free() int { return s.engine.cfg.Concurrency - s.active }

// closing reports whether nothing more will be claimed. The caller holds the lock.
func (s *session) closing() bool { return s.stopping() || s.failure != nil }

// claims reports whether a claim is to be made. The caller holds the lock.
func (s *session) claims() bool {
	return s.again && !s.ended && s.free() > 0 && !s.closing() && s.mayClaim()
}

// claimsAhead reports whether a claim is to be made although vehicles wait: half the slots are free, and those
// who drive the others would have nothing left before the claim is answered. The caller holds the lock.
func (s *session) claimsAhead() bool {
	return len(s.queue) > 0 && s.free() >= (s.engine.cfg.Concurrency+1)/2 && !s.claiming && s.claims()
}

// callAnother calls a goroutine for what there is to do, unless one is on its way: that one calls the next. The
// caller holds the lock.
func (s *session) callAnother() {
	if !s.called {
		s.called = true
		s.call(nil)
	}
}

// next is the vehicle to drive next. When none waits, or half the slots are free, it claims for the free
// slots, if something may be due; nil when there is nothing to do here.
func (s *session) next() *vehicle {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.claimsAhead() {
			s.callAnother()
		} else if v := s.take(); v != nil {
			return v
		}
		free := s.free()
		switch {
		case s.ended || s.claiming:
			return nil
		case s.dispatcher == nil && !s.again && free > 0:
			s.dry = s.active == 0
			s.settleOver()
			return nil
		case s.closing():
			s.settleOver()
			return nil
		case !s.claims():
			return nil
		}
		s.claiming, s.again = true, false
		if s.dispatcher != nil {
			s.dispatcher.announced = false
		}
		prefer := s.prefer
		limit := min(s.toAsk(free), claimLimit)
		if limit == 1 {
			s.prefer = other(prefer)
		}
		s.asked = limit
		vehicles, poisoned, err := s.claimUnlocked(limit, prefer)
		s.claiming, s.asked = false, 0
		if err != nil {
			s.cannotClaim(err)
			continue
		}
		s.short = len(vehicles)+poisoned < limit
		if poisoned > 0 || !s.short && limit < free {
			s.again = true
		}
		s.active += len(vehicles)
		s.done.Claims += len(vehicles)
		s.done.Poisons += poisoned
		if s.dispatcher != nil {
			s.dispatcher.claimed(len(vehicles) + poisoned)
		}
		if len(s.wakes) > 0 {
			for _, v := range vehicles {
				delete(s.wakes, v.lease.Run)
			}
		}
		s.queue = append(s.queue, vehicles...)
	}
}

// claimUnlocked claims without the lock, which the caller holds before and after.
func (s *session) claimUnlocked(limit int, prefer claim.Class) (vehicles []*vehicle, poisoned int, err error) {
	s.mu.Unlock()
	defer s.mu.Lock()
	return s.claim(limit, prefer)
}

// mayClaim reports whether claiming is not held back for now. The caller holds the lock.
func (s *session) mayClaim() bool { return s.dispatcher == nil || s.dispatcher.mayClaim() }

// cannotClaim takes note that the backend refused a claim. The caller holds the lock.
func (s *session) cannotClaim(err error) {
	if s.dispatcher == nil {
		s.failure = err
		return
	}
	if errors.Is(err, backend.ErrClosed) {
		s.failure = err
		s.dispatcher.woken.Set()
		return
	}
	s.again = true
	s.dispatcher.refused(err)
}

func other(c claim.Class) claim.Class {
	if c == claim.Ready {
		return claim.Expired
	}
	return claim.Ready
}

// settleOver ends the session when it holds nothing. The caller holds the lock.
func (s *session) settleOver() {
	if s.active == 0 && !s.claiming {
		s.ended = true
		s.dismiss()
		s.over.Set()
	}
}

// claim asks the backend once.
func (s *session) claim(limit int, prefer claim.Class) (vehicles []*vehicle, poisoned int, err error) {
	e := s.engine
	policy := claim.Policy{
		TTL: e.cfg.TTL, Limit: limit, MaxAttempts: e.cfg.MaxAttempts,
		Prefer: prefer, Fairness: e.cfg.Fairness, OwnerCap: e.cfg.OwnerCap, Filter: s.filter,
	}
	var batch backend.ClaimedBatch
	var sent time.Time
	ask := func() (err error) {
		sent = e.clock.Now()
		if e.features.ClaimDocuments != nil {
			batch, err = e.features.ClaimDocuments.ClaimDueDocuments(s.io, policy)
		} else {
			batch.Batch, err = e.store.ClaimDue(s.io, policy)
		}
		return err
	}
	err = answered(func() error {
		if s.dispatcher != nil {
			return ask() // the dispatcher tries again, and Health tells of the first failure
		}
		return e.retry(s.io, ask)
	})
	if err != nil {
		return nil, 0, err
	}
	now := instants{named: batch.Now, since: e.clock.Now()}
	e.anchor.set(now)
	for _, p := range batch.Poisoned {
		e.log.LogAttrs(s.io, slog.LevelError, "belay: a run is poisoned: find the cause, then free it with RetryPoisoned",
			slog.String(keyRun, p.Run), slog.String(keyGraph, p.GraphID), slog.String(keyReason, p.Poison.Reason))
		e.tellPoisoned(s.io, ObservedPoison{
			ObservedRun: ObservedRun{Run: p.Run, Graph: graph.Ref{ID: p.GraphID, Hash: p.GraphHash}, Owner: p.Owner},
			Reason:      p.Poison.Reason,
		})
	}
	for _, p := range batch.Poisoned {
		e.watch.look(p.Run)
	}
	e.stats.poisons.Add(int64(len(batch.Poisoned)))
	e.stats.claims.Add(int64(len(batch.Leases)))
	vehicles = make([]*vehicle, len(batch.Leases))
	for i, lease := range batch.Leases {
		v := newVehicle(s, lease, now, sent)
		if batch.Documents != nil {
			v.claimed = &batch.Documents[i]
			v.reached.Store(v.claimed.Document)
		}
		vehicles[i] = v
	}
	e.beat.hold(vehicles)
	return vehicles, len(batch.Poisoned), nil
}

// finished frees the vehicle's slot.
func (s *session) finished(v *vehicle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	s.done.Commits += v.commits
	if v.abandoned {
		s.done.Abandons++
	}
	if s.dispatcher != nil {
		s.again = s.again || s.dispatcher.freed(v)
		return
	}
	if !v.wake.IsZero() {
		s.wakes[v.lease.Run] = v.wake
	}
	s.parked(v)
	s.again = true
}

// parked counts, in a drain, how often in a row a run was parked and is due at once. The caller holds the
// lock.
func (s *session) parked(v *vehicle) {
	id := v.lease.Run
	if !v.parked || v.wake.After(v.now()) {
		delete(s.parks, id)
		return
	}
	s.parks[id]++
	if n := s.parks[id]; n >= s.mayPark && s.failure == nil {
		s.failure = fmt.Errorf("%w: run %s was parked %d times in a row until an instant that had come already: let its node snooze until one ahead, or complete", ErrNoProgress, id, n)
	}
}

// stopping reports whether a shutdown has begun.
func (s *session) stopping() bool { return s.ctx.Err() != nil }

// stop begins a shutdown: nothing more is claimed, running nodes may still reach a commit.
func (s *session) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.closed {
		return
	}
	s.stopped = true
	s.settleOver()
	s.stopLast = s.engine.clock.AfterFunc(s.engine.cfg.ShutdownTimeout, s.cut)
}

// cut ends the contexts of nodes that did not get to a commit. After their grace, what still
// asks something of the backend is cut off too.
func (s *session) cut() {
	s.mu.Lock()
	if s.cutting || s.closed {
		s.mu.Unlock()
		return
	}
	s.cutting = true
	if s.stopLast != nil {
		s.stopLast()
	}
	s.stopLast = s.engine.clock.AfterFunc(2*s.engine.cfg.NodeGrace, s.endIO)
	s.mu.Unlock()
	s.engine.beat.each(func(v *vehicle) {
		if v.session == s {
			v.end(ErrShutdown, "")
		}
	})
}

// close releases what a session that is over holds.
func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.stopLast != nil {
		s.stopLast()
	}
	s.endIO()
	s.engine.beat.rest()
}

// summary is what the session did.
func (s *session) summary() Drained {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.done
	for _, at := range s.wakes {
		if d.Next.IsZero() || at.Before(d.Next) {
			d.Next = at
		}
	}
	return d
}
