package lifecycle

import (
	"context"
	"time"
)

// scheduler is where the engine's concurrency comes from. Everything it runs at the same time
// is started by Go or Each, and everything it waits for besides the backend and a node is an
// event; time comes from the Clock. Whoever replaces the three decides every
// interleaving.
type scheduler interface {
	Go(f func())
	NewEvent() event
	// Each calls f for each value of a channel, until it is closed.
	Each(values <-chan struct{}, f func())
}

// event is a binary semaphore: a Set lets one Wait through, Sets coalesce.
type event interface {
	Set()
	Wait()
}

type goroutines struct{}

func (goroutines) Go(f func()) { go f() }

func (goroutines) Each(values <-chan struct{}, f func()) {
	go func() {
		for range values {
			f()
		}
	}()
}

func (goroutines) NewEvent() event { return make(channelEvent, 1) }

type channelEvent chan struct{}

func (e channelEvent) Set() {
	select {
	case e <- struct{}{}:
	default:
	}
}

func (e channelEvent) Wait() { <-e }

// sleep waits for d on the engine's clock. It reports false when ctx ended.
func (e *Engine) sleep(ctx context.Context, d time.Duration) bool {
	return e.wait(ctx, d, e.scheduler.NewEvent())
}

// wait waits for the event to be set, at most d. It reports false when ctx ended.
func (e *Engine) wait(ctx context.Context, d time.Duration, ev event) bool {
	if ctx.Err() != nil {
		return false
	}
	stopTimer := e.clock.AfterFunc(d, ev.Set)
	stopCtx := context.AfterFunc(ctx, ev.Set)
	ev.Wait()
	stopTimer()
	stopCtx()
	return ctx.Err() == nil
}
