package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// heartbeat keeps the claims that this engine holds. It looks at them every twelfth of
// the TTL: when one was not confirmed for a third of it, all that are due soon are refreshed together;
// one that was not confirmed for ten twelfths is given up, before anybody else could take
// it. Nothing runs while nothing is held.
type heartbeat struct {
	engine *Engine

	mu      sync.Mutex
	first   *vehicle // a list, so that holding and dropping cost the same for any number
	count   int
	runs    map[string]*vehicle // the latest of each run
	ticking bool
	stop    func() bool

	refreshing bool // by one tick at a time, however long the backend takes

	givenUp map[string]int // how often in a row, without a commit, a run was given up here
}

// maxGivenUp bounds of how many runs it is known that they were given up. One that is forgotten is
// counted anew.
const maxGivenUp = 4096

func newHeartbeat(e *Engine) *heartbeat {
	return &heartbeat{engine: e, runs: map[string]*vehicle{}, givenUp: map[string]int{}}
}

func (h *heartbeat) tickEvery() time.Duration  { return h.engine.cfg.TTL / 12 }
func (h *heartbeat) refreshAge() time.Duration { return h.engine.cfg.TTL / 3 }
func (h *heartbeat) alongAge() time.Duration   { return h.engine.cfg.TTL / 6 }
func (h *heartbeat) giveUpAge() time.Duration  { return h.engine.cfg.TTL / 12 * 10 }

// hold takes new claims in. A process that stood still for longer than the TTL may take its own
// expired claims over before a tick has looked at them: what still runs under those is ended first.
func (h *heartbeat) hold(vehicles []*vehicle) {
	for _, v := range h.take(vehicles) {
		v.end(ErrClaimLost, FenceRefresh)
	}
}

// take takes new claims in, and answers whose expired claims they replace.
func (h *heartbeat) take(vehicles []*vehicle) (replaced []*vehicle) {
	if len(vehicles) == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range vehicles {
		// One whose run was claimed as ready has given its claim back itself, and is about to finish.
		if older := h.runs[v.lease.Run]; older != nil && v.lease.Class != claim.Ready {
			replaced = append(replaced, older)
		}
		v.next, v.held = h.first, true
		if h.first != nil {
			h.first.prev = v
		}
		h.first = v
		h.runs[v.lease.Run] = v
		h.count++
	}
	if !h.ticking {
		h.ticking = true
		h.stop = h.engine.clock.AfterFunc(h.tickEvery(), h.tick)
	}
	return replaced
}

// drop forgets a claim that is not held any more.
func (h *heartbeat) drop(v *vehicle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !v.held {
		return
	}
	v.held = false
	if v.prev != nil {
		v.prev.next = v.next
	} else {
		h.first = v.next
	}
	if v.next != nil {
		v.next.prev = v.prev
	}
	v.prev, v.next = nil, nil
	h.count--
	if id := v.lease.Run; h.runs[id] == v {
		delete(h.runs, id)
	}
	if v.commits > 0 && len(h.givenUp) > 0 {
		delete(h.givenUp, v.lease.Run)
	}
}

// givesUp counts a run that is given up because its claim could not be refreshed in time, and
// reports whether it gets its attempt back: the host or the database is to blame, unless it happens
// to this run again and again.
func (h *heartbeat) givesUp(v *vehicle) (refund bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for old := range h.givenUp {
		if len(h.givenUp) < maxGivenUp {
			break
		}
		delete(h.givenUp, old)
	}
	h.givenUp[v.lease.Run]++
	return h.givenUp[v.lease.Run] <= h.engine.cfg.MaxAbandons
}

// expiresIn is how long it takes until a claim that was not confirmed again may be stolen.
func (h *heartbeat) expiresIn(v *vehicle) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(h.engine.cfg.TTL-h.engine.clock.Now().Sub(v.confirmed), 0)
}

// driver is the vehicle that drives an owner's run here, holds its claim as far as is known, and will
// do something about it yet; nil: none.
func (h *heartbeat) driver(id string, owner backend.Owner) *vehicle {
	h.mu.Lock()
	v := h.runs[id]
	h.mu.Unlock()
	if v == nil || v.lease.Owner != owner || v.ended() != nil {
		return nil
	}
	if d := v.reached.Load(); d == nil || atRest(d) {
		return nil
	}
	return v
}

// confirm notes that a commit or a refresh that was sent at a local instant found the claim held.
func (h *heartbeat) confirm(v *vehicle, sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if sent.After(v.confirmed) {
		v.confirmed = sent
	}
}

// overdue reports whether a claim was not confirmed for so long that somebody else may soon have
// it: a process that was frozen must not begin a node when it goes on.
func (h *heartbeat) overdue(v *vehicle) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.engine.clock.Now().Sub(v.confirmed) >= h.giveUpAge()
}

// each calls f for every held claim.
func (h *heartbeat) each(f func(*vehicle)) {
	h.mu.Lock()
	held := make([]*vehicle, 0, h.count)
	for v := h.first; v != nil; v = v.next {
		held = append(held, v)
	}
	h.mu.Unlock()
	for _, v := range held {
		f(v)
	}
}

// end ends what this engine has in flight for a run whose claim was revoked by the commit of a
// sequence. A claim taken after that commit is another one.
func (h *heartbeat) end(id string, seq int64, cause error) {
	h.each(func(v *vehicle) {
		if v.lease.Run == id && v.seq.Load() < seq {
			v.end(cause, FenceSignal)
		}
	})
}

// rest stops the ticks when nothing is held.
func (h *heartbeat) rest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.first == nil && h.ticking && h.stop() {
		h.ticking = false
	}
}

// tick is one look at what is held.
func (h *heartbeat) tick() {
	now := h.engine.clock.Now()
	var due, overdue []*vehicle
	h.mu.Lock()
	if h.first == nil {
		h.ticking = false
		h.mu.Unlock()
		return
	}
	h.stop = h.engine.clock.AfterFunc(h.tickEvery(), h.tick)
	anyDue := false
	for v := h.first; v != nil; v = v.next {
		switch age := now.Sub(v.confirmed); {
		case age >= h.giveUpAge():
			overdue = append(overdue, v)
		case age >= h.alongAge():
			due = append(due, v)
			anyDue = anyDue || age >= h.refreshAge()
		}
	}
	if refresh := anyDue && !h.refreshing; refresh {
		h.refreshing = true
	} else {
		due = nil
	}
	h.mu.Unlock()

	for _, v := range overdue {
		v.say(h.engine.outage.warning(), "belay: a claim could not be refreshed in time, its run is given up here")
		v.end(ErrClaimLost, FenceExpiry)
	}
	if due != nil {
		h.refreshOnce(due)
	}
}

// refreshOnce refreshes, and is ready for the next time also when the backend panics: that fails
// these refreshes, not the host's process.
func (h *heartbeat) refreshOnce(due []*vehicle) {
	defer func() {
		if r := recover(); r != nil {
			h.engine.log.LogAttrs(context.Background(), slog.LevelError, "belay: the backend panicked while it refreshed claims, they are tried again",
				slog.String(keyError, panicText(r)))
		}
		h.mu.Lock()
		h.refreshing = false
		h.mu.Unlock()
	}()
	h.refresh(due)
}

// refresh asks the backend to confirm claims, all in one call where it can.
func (h *heartbeat) refresh(due []*vehicle) {
	e := h.engine
	ctx, cancel := e.withTimeout(h.refreshAge())
	defer cancel()
	sent := e.clock.Now()
	answers := make([]error, len(due))
	if batches := e.features.Batches; batches != nil {
		held := make([]backend.Held, len(due))
		for i, v := range due {
			held[i] = backend.Held{Run: v.lease.Run, Token: v.lease.Token}
		}
		answers = batches.RefreshClaims(ctx, held, time.Time{})
	} else {
		for i, v := range due {
			answers[i] = e.store.RefreshClaim(ctx, v.lease.Run, v.lease.Token, time.Time{})
		}
	}
	var failure error
	for i, v := range due[:min(len(due), len(answers))] {
		switch err := answers[i]; {
		case err == nil:
			h.confirm(v, sent)
		case errors.Is(err, claim.ErrClaimLost):
			e.scheduler.Go(func() { h.lost(v) })
		case !errors.Is(err, backend.ErrBusy):
			failure = err
			v.say(slog.LevelDebug, "belay: a claim could not be refreshed, it is tried again", slog.String(keyError, err.Error()))
		}
	}
	if failure != nil {
		e.outage.failed(ctx, failure, h.tickEvery())
	} else {
		e.outage.over(ctx)
	}
}

// lost ends a vehicle whose claim another has, or nobody any more, and finds out for its nodes
// whether the run was cancelled.
func (h *heartbeat) lost(v *vehicle) {
	ctx, cancel := h.engine.withTimeout(min(h.tickEvery(), time.Second))
	defer cancel()
	cause := ErrClaimLost
	_ = answered(func() error { // without an answer it is lost, and that is all that is said
		d, err := h.engine.store.FetchRun(ctx, backend.System(), v.lease.Run)
		if err == nil && d.Status == run.Cancelled {
			cause = ErrRunCancelled
		}
		return err
	})
	v.end(cause, FenceRefresh)
}

// withTimeout is a context of nobody's that ends after d on the engine's clock.
func (e *Engine) withTimeout(d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := e.clock.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}
