package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
)

// hub tells the subscribers of one store.
type hub struct {
	s      *Store
	mu     sync.Mutex
	subs   map[*subscription]struct{}
	closed bool

	start   sync.Once // of the listener
	sending sync.Once // of the notifier
	running sync.WaitGroup
	live    chan struct{} // closed when the listener hears, or knows that it will not
	alive   sync.Once     // closes live
	pending chan struct{} // a notification to send
	ctx     context.Context
	cancel  context.CancelFunc
}

type subscription struct {
	wake chan struct{}
	stop func() bool // of the watch on the subscriber's context
}

func newHub(s *Store) *hub {
	h := &hub{s: s, subs: make(map[*subscription]struct{}), live: make(chan struct{}), pending: make(chan struct{}, 1)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

func (h *hub) broadcast() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for sub := range h.subs {
		select {
		case sub.wake <- struct{}{}:
		default: // one is pending, which tells of this too
		}
	}
}

func (h *hub) leave(sub *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, live := h.subs[sub]; live {
		delete(h.subs, sub)
		close(sub.wake)
	}
}

func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	for sub := range h.subs {
		delete(h.subs, sub)
		close(sub.wake)
		sub.stop()
	}
	h.mu.Unlock()
	h.cancel()
	h.running.Wait()
}

// Subscribe implements backend.Wakes (feature X5): it tells of what was changed through
// this store, and through every other one on the schema while there is a listening
// connection, which the first subscription makes. Without one, and while it is being made
// anew, subscribers are told to look every Options.PollInterval. Releases and abandons, and
// what a host's own transaction starts, are told in this store only, or not at all.
func (s *Store) Subscribe(ctx context.Context) (<-chan struct{}, error) {
	h := s.hub
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, backend.ErrClosed
	}
	h.start.Do(func() { h.running.Go(h.listen) })
	h.mu.Unlock()
	select {
	case <-h.live: // what comes from now on is heard, or its loss is announced
	case <-h.ctx.Done():
		return nil, backend.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	sub := &subscription{wake: make(chan struct{}, 1)}
	sub.wake <- struct{}{} // it is live
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, backend.ErrClosed
	}
	h.subs[sub] = struct{}{}
	sub.stop = context.AfterFunc(ctx, func() { h.leave(sub) })
	return sub.wake, nil
}

// changed tells of a commit that made a run due, or changed one.
func (s *Store) changed(schedule checkpoint.Schedule, now time.Time) {
	switch schedule.Kind {
	case checkpoint.Retain, checkpoint.ReleaseExternal, checkpoint.ReleaseTerminal:
		return
	case checkpoint.ReleaseAt:
		if !now.IsZero() && schedule.At.After(now) {
			return // it is found by the poll that comes when it is due
		}
	case checkpoint.ReleaseNow:
	}
	s.wake()
}

// wake tells every subscriber, of this store and of others.
func (s *Store) wake() {
	s.hub.broadcast()
	s.hub.notify()
}
