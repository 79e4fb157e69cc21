package memory

import (
	"context"
	"slices"
	"sync"
)

// lock serializes the writers of one run. Those who wait are served in the order they
// came, so nobody starves, and stop waiting when their context ends.
type lock struct {
	mu      sync.Mutex
	held    bool
	waiting []chan struct{}
}

// try takes the lock if nobody holds it.
func (l *lock) try() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held {
		return false
	}
	l.held = true
	return true
}

// acquire takes the lock, or answers the context's error.
func (l *lock) acquire(ctx context.Context) error {
	l.mu.Lock()
	if !l.held {
		l.held = true
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	l.mu.Unlock()

	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	i := slices.Index(l.waiting, turn)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	l.mu.Unlock()
	if i < 0 {
		// The lock was handed over at that very moment: hand it on.
		l.release()
	}
	return ctx.Err()
}

// release gives the lock up: to the first of those who wait, who then holds it.
func (l *lock) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.held = false
		return
	}
	turn := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	if len(l.waiting) == 0 {
		l.waiting = nil
	}
	close(turn)
}
