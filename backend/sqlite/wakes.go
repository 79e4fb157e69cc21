package sqlite

import (
	"context"
	"sync"

	"github.com/belay-run/belay/backend"
)

// hub tells the subscribers of one file within one process. What other processes
// commit is found by polling.
type hub struct {
	mu   sync.Mutex
	subs map[*subscription]struct{}
}

type subscription struct {
	store *Store
	wake  chan struct{}
	stop  func() bool // of the watch on the subscriber's context
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

func (h *hub) leaveAll(s *Store) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for sub := range h.subs {
		if sub.store == s {
			delete(h.subs, sub)
			close(sub.wake)
			sub.stop()
		}
	}
}

// Subscribe tells of commits, releases and starts made through any store of this
// process on the same file (feature X5). It does not tell of other processes, nor of
// transactions of a host's own.
func (s *Store) Subscribe(ctx context.Context) (<-chan struct{}, error) {
	if s.isClosed() {
		return nil, backend.ErrClosed
	}
	sub := &subscription{store: s, wake: make(chan struct{}, 1)}
	sub.wake <- struct{}{} // it is live
	h := &s.common.hub
	h.mu.Lock()
	h.subs[sub] = struct{}{}
	sub.stop = context.AfterFunc(ctx, func() { h.leave(sub) })
	h.mu.Unlock()
	if s.isClosed() {
		sub.stop()
		h.leave(sub)
	}
	return sub.wake, nil
}
