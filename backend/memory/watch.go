package memory

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/belay-run/belay/backend"
)

// watchers are the subscriptions to wakes (feature X5).
type watchers struct {
	count  atomic.Int32 // of subs, so that announcing to nobody costs nothing
	mu     sync.Mutex
	subs   map[*subscription]struct{}
	closed bool
}

type subscription struct {
	wake chan struct{}
	stop func() bool // ends the watch over the subscriber's context
}

// Subscribe announces whenever something may have become due or changed (feature X5).
// The channel holds one value; more coalesce, and none is lost.
func (s *Store) Subscribe(ctx context.Context) (<-chan struct{}, error) {
	if err := s.enter(ctx, "subscribe: begun"); err != nil {
		return nil, err
	}
	w := &s.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, backend.ErrClosed
	}
	sub := &subscription{wake: make(chan struct{}, 1)}
	sub.wake <- struct{}{} // live from here on
	if w.subs == nil {
		w.subs = make(map[*subscription]struct{})
	}
	w.subs[sub] = struct{}{}
	w.count.Add(1)
	sub.stop = context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.end(sub)
	})
	return sub.wake, nil
}

// announce wakes every subscriber that has no value waiting.
func (w *watchers) announce() {
	if w.count.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for sub := range w.subs {
		select {
		case sub.wake <- struct{}{}:
		default:
		}
	}
}

// end closes a subscription, once. The watchers are locked.
func (w *watchers) end(sub *subscription) {
	if _, live := w.subs[sub]; !live {
		return
	}
	delete(w.subs, sub)
	w.count.Add(-1)
	close(sub.wake)
}

// close ends every subscription.
func (w *watchers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for sub := range w.subs {
		sub.stop()
		w.end(sub)
	}
}
