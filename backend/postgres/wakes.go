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
}

type subscription struct {
	wake chan struct{}
	stop func() bool // of the watch on the subscriber's context
}

func newHub(s *Store) *hub { return &hub{s: s, subs: make(map[*subscription]struct{})} }

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
	defer h.mu.Unlock()
	h.closed = true
	for sub := range h.subs {
		delete(h.subs, sub)
		close(sub.wake)
		sub.stop()
	}
}

// Subscribe implements backend.Wakes (feature X5).
func (s *Store) Subscribe(ctx context.Context) (<-chan struct{}, error) {
	sub := &subscription{wake: make(chan struct{}, 1)}
	sub.wake <- struct{}{} // it is live
	h := s.hub
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
func (s *Store) wake() { s.hub.broadcast() }
