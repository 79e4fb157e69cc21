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
}

// hubs are shared by the stores of a process that are open on the same path, so that a
// commit through one handle wakes those that listen on another.
var hubs struct {
	sync.Mutex
	byPath map[string]*hub
	users  map[string]int
}

func joinHub(path string) *hub {
	hubs.Lock()
	defer hubs.Unlock()
	if hubs.byPath == nil {
		hubs.byPath, hubs.users = make(map[string]*hub), make(map[string]int)
	}
	if hubs.byPath[path] == nil {
		hubs.byPath[path] = &hub{subs: make(map[*subscription]struct{})}
	}
	hubs.users[path]++
	return hubs.byPath[path]
}

func leaveHub(path string) {
	hubs.Lock()
	defer hubs.Unlock()
	if hubs.users[path]--; hubs.users[path] == 0 {
		delete(hubs.users, path)
		delete(hubs.byPath, path)
	}
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
	s.hub.mu.Lock()
	s.hub.subs[sub] = struct{}{}
	s.hub.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { s.hub.leave(sub) })
	if s.isClosed() {
		stop()
		s.hub.leave(sub)
	}
	return sub.wake, nil
}
