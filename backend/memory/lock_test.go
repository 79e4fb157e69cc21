package memory

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestALockIsHandedOnInTheOrderOfThoseWhoWait(t *testing.T) {
	var l lock
	if !l.try() || l.try() {
		t.Fatal("a free lock is taken once")
	}
	const n = 20
	var order []int
	var done sync.WaitGroup
	for i := range n {
		done.Go(func() {
			if err := l.acquire(t.Context()); err != nil {
				t.Error(err)
			}
			order = append(order, i)
			l.release()
		})
		l.awaitWaiters(i + 1)
	}
	l.release()
	done.Wait()
	for i := range order {
		if order[i] != i {
			t.Fatalf("the order is %v", order)
		}
	}
	if !l.try() {
		t.Error("in the end the lock is not free")
	}
}

// awaitWaiters returns once n wait.
func (l *lock) awaitWaiters(n int) {
	for {
		l.mu.Lock()
		waiting := len(l.waiting)
		l.mu.Unlock()
		if waiting >= n {
			return
		}
		runtime.Gosched()
	}
}

func TestWaitingForALockEndsWithTheContext(t *testing.T) {
	var l lock
	l.try()
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	go func() { errs <- l.acquire(ctx) }()
	l.awaitWaiters(1)
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Errorf("waiting ended with %v", err)
	}
	l.release()
	if !l.try() {
		t.Error("the lock was handed to somebody who no longer waits")
	}
}

// A waiter whose context ends at the moment at which it is handed the lock hands it on.
func TestNoLockIsLostBetweenHandingOnAndGivingUp(t *testing.T) {
	var l lock
	var holders atomic.Int32
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				if err := l.acquire(ctx); err == nil {
					if holders.Add(1) != 1 {
						t.Error("two hold the lock")
					}
					holders.Add(-1)
					l.release()
				}
				cancel()
			}
		})
	}
	work.Wait()
	if !l.try() {
		t.Error("in the end the lock is not free")
	}
}
