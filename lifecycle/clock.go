package lifecycle

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/belay-run/belay/claim"
)

// Clock is a source of time that tests can replace. It must be safe for concurrent use,
// and the difference of two of its instants must be time that passed: either they carry a
// monotonic reading, as time.Now's do, or the clock never goes back.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once, after d, unless stop is called before; stop reports whether
	// it prevented the call. f must not be called within AfterFunc itself.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// SystemClock is the host's clock.
func SystemClock() Clock { return systemClock{} }

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// VirtualClock is a clock that moves only when it is told to, so that a day passes at once
// in a test. Give the backend its Now too. What the engine waits for (a node's timeout, the pause
// before a failed call is sent again) passes with it as well. It is safe for concurrent use.
type VirtualClock struct {
	mu     sync.Mutex
	now    time.Time
	order  int64
	timers timerHeap
}

// NewVirtualClock makes a clock that stands at start.
func NewVirtualClock(start time.Time) *VirtualClock {
	return &VirtualClock{now: claim.Instant(start)}
}

// Now is where the clock stands.
func (c *VirtualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc implements Clock. A function that is due at once gets a goroutine of its own;
// any other is called by the Advance that reaches it. A nil function is ignored.
func (c *VirtualClock) AfterFunc(d time.Duration, f func()) func() bool {
	if f == nil {
		return func() bool { return false }
	}
	if d <= 0 {
		go f()
		return func() bool { return false }
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order++
	t := &virtualTimer{at: c.now.Add(d), order: c.order, f: f}
	heap.Push(&c.timers, t)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if t.index < 0 {
			return false
		}
		heap.Remove(&c.timers, t.index)
		return true
	}
}

// Advance moves the clock by d, calling the functions that become due one after the other,
// each at its own instant. It returns when they have. A d below zero moves nothing.
func (c *VirtualClock) Advance(d time.Duration) { c.AdvanceTo(c.Now().Add(d)) }

// AdvanceTo moves the clock to t, as Advance does; a t in its past moves nothing.
func (c *VirtualClock) AdvanceTo(t time.Time) {
	t = claim.Instant(t)
	for {
		c.mu.Lock()
		if len(c.timers) == 0 || c.timers[0].at.After(t) {
			if t.After(c.now) {
				c.now = t
			}
			c.mu.Unlock()
			return
		}
		due := heap.Pop(&c.timers).(*virtualTimer)
		if due.at.After(c.now) {
			c.now = due.at
		}
		c.mu.Unlock()
		due.f()
	}
}

type virtualTimer struct {
	at    time.Time
	order int64
	f     func()
	index int // -1 once out of the heap
}

type timerHeap []*virtualTimer

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].order < h[j].order
	}
	return h[i].at.Before(h[j].at)
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timerHeap) Push(x any) {
	t := x.(*virtualTimer)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = -1
	return t
}

// instants derives the backend's present from an instant the backend named and the time
// that passed here since, so that hosts whose clocks disagree still agree (clause A3).
type instants struct{ named, since time.Time }

func (i instants) at(local time.Time) time.Time {
	passed := local.Sub(i.since)
	if passed < 0 {
		passed = 0
	}
	return claim.Instant(i.named.Add(passed))
}

// anchor keeps the newest instants an engine knows, for what it does without a claim.
type anchor struct {
	mu sync.Mutex
	instants
}

// anchorAge is how long the local clock is trusted to keep the backend's pace before the
// backend is asked again.
const anchorAge = time.Minute

func (a *anchor) set(i instants) {
	a.mu.Lock()
	a.instants = i
	a.mu.Unlock()
}

func (a *anchor) get() instants {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.instants
}

// present is the backend's now, as this engine knows it: derived from what the backend said
// last, asked of its clock when that is long ago, the host's clock when it has told nothing.
func (e *Engine) present(ctx context.Context) (time.Time, error) {
	known := e.anchor.get()
	local := e.clock.Now()
	if !known.named.IsZero() && local.Sub(known.since) < anchorAge {
		return known.at(local), nil
	}
	if clock := e.features.Clock; clock != nil {
		var named time.Time
		err := e.retry(ctx, func() (err error) {
			named, err = clock.Now(ctx)
			return err
		})
		if err != nil {
			return time.Time{}, err
		}
		e.anchor.set(instants{named: named, since: e.clock.Now()})
		return claim.Instant(named), nil
	}
	if !known.named.IsZero() {
		return known.at(local), nil
	}
	return claim.Instant(local), nil
}
