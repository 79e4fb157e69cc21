package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// serving is what Run, Shutdown and the others share.
type serving struct {
	session atomic.Pointer[session] // of Run, from its beginning to its end
	paused  atomic.Bool

	mu      sync.Mutex
	begun   bool
	stopped bool // no Run begins any more
	over    bool
	cancel  context.CancelCauseFunc
	waiting []event // for the end of Run
}

// Run drives what becomes due, until ctx ends or Shutdown is called: it claims in batches sized
// to the free slots, when something is started or released here, when the backend announces
// it, and every Config.PollInterval. Failures of the backend are logged and tried again; many
// engines, in many processes, may run on one backend.
//
// The end of ctx is a shutdown, not a cancellation: nothing more is claimed, running nodes have
// Config.ShutdownTimeout to reach a commit, and the rest is released, due at once elsewhere and
// without an attempt used up. Run then answers nil. It answers an error when the backend
// was closed under it, ErrRunning when the engine runs already, and ErrStopped
// when it has run before or was shut down: an engine runs once.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.check(ctx); err != nil {
		return err
	}
	s, err := e.begin(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(s.ctx, s.stop)
	defer stop()
	if r := e.cfg.Retention; r != nil {
		e.scheduler.Go(func() { e.retain(s.ctx, *r) })
	}
	s.dispatcher.run()
	s.over.Wait()
	s.close()
	e.ended()
	if s.failure != nil {
		return fmt.Errorf("belay: the engine stopped, the backend cannot be claimed from: %w", s.failure)
	}
	return nil
}

// begin makes the session of Run.
func (e *Engine) begin(ctx context.Context) (*session, error) {
	v := &e.serving
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.stopped || v.over:
		return nil, ErrStopped
	case v.begun:
		return nil, ErrRunning
	}
	v.begun = true
	ctx, v.cancel = context.WithCancelCause(ctx)
	s := newSession(ctx, e, claim.Filter{Graphs: e.cfg.Graphs})
	s.dispatcher = newDispatcher(s)
	v.session.Store(s)
	return s, nil
}

// ended tells whoever waits for the end of Run.
func (e *Engine) ended() {
	v := &e.serving
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cancel(ErrShutdown)
	v.over = true
	v.session.Store(nil)
	for _, ev := range v.waiting {
		ev.Set()
	}
}

// Shutdown ends Run as the end of its context does, and waits until it has ended. When ctx
// ends first, the contexts of nodes that still run end at once instead of after
// Config.ShutdownTimeout, and Shutdown answers an error that wraps ctx's while Run goes on to its end.
// Clients of the engine may be used afterwards, too. Without a Run it only keeps one from beginning.
func (e *Engine) Shutdown(ctx context.Context) error {
	if err := e.check(ctx); err != nil {
		return err
	}
	v := &e.serving
	v.mu.Lock()
	v.stopped = true
	if !v.begun || v.over {
		v.mu.Unlock()
		return nil
	}
	s := v.session.Load()
	ev := e.scheduler.NewEvent()
	v.waiting = append(v.waiting, ev)
	v.mu.Unlock()

	v.cancel(ErrShutdown)
	s.stop()
	stopCtx := context.AfterFunc(ctx, ev.Set)
	defer stopCtx()
	ev.Wait()
	v.mu.Lock()
	over := v.over
	v.mu.Unlock()
	if over {
		return nil
	}
	s.cut()
	return fmt.Errorf("belay: the engine did not shut down in time, its nodes are cut short: %w", context.Cause(ctx))
}

// Wake makes Run look for due runs at once: for what became due by a way that the engine
// cannot see, the commit of a host's transaction in which StartIn started a run, say. Without a Run it does nothing.
func (e *Engine) Wake() {
	if s := e.serving.session.Load(); s != nil {
		s.wake()
	}
}

// becomesDue looks for the run of a proposal that was committed here without a claim, when
// it is due.
func (e *Engine) becomesDue(p run.Proposal) {
	s := e.serving.session.Load()
	if s == nil {
		return
	}
	wake := wakeOf(p)
	if wake.IsZero() {
		return
	}
	after := time.Duration(0)
	if !p.Now.IsZero() {
		after = wake.Sub(p.Now)
	}
	if after <= 0 {
		s.wake()
		return
	}
	s.mu.Lock()
	s.dispatcher.parked(after)
	s.mu.Unlock()
}

// Pause keeps Run from claiming until Resume; what it holds goes on. It may be called before Run,
// and does not concern other engines, nor Drain.
func (e *Engine) Pause() { e.serving.paused.Store(true) }

// Resume ends a Pause.
func (e *Engine) Resume() {
	e.serving.paused.Store(false)
	e.Wake()
}

func (e *Engine) paused() bool { return e.serving.paused.Load() }

// Health is how a running engine fares.
type Health struct {
	// Running: Run has begun and neither ended nor been told to shut down.
	Running bool
	Paused  bool
	// Claimed is when the backend last answered a claim, by the engine's clock. Zero: not yet.
	Claimed time.Time
	// Err is why the backend cannot be claimed from at the moment; nil when it can.
	Err error
	// Held is how many runs are driven at the moment.
	Held int
}

// Health is a reading of how the engine fares, for a readiness check say.
func (e *Engine) Health() Health {
	h := Health{Paused: e.paused()}
	s := e.serving.session.Load()
	if s == nil {
		return h
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.Running = !s.stopping() && s.failure == nil
	h.Claimed, h.Err, h.Held = s.dispatcher.found, s.dispatcher.lastError, s.active
	if s.failure != nil {
		h.Err = s.failure
	}
	return h
}
