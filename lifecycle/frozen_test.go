package lifecycle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

// leaping is a clock that can leap without calling what becomes due, as for a process that was
// frozen and goes on: its timers are late.
type leaping struct {
	*lifecycle.VirtualClock
	by atomic.Int64
}

func (c *leaping) Now() time.Time { return c.VirtualClock.Now().Add(time.Duration(c.by.Load())) }

func TestH2FrozenEngineThatTakesItsOwnExpiredClaimOverEndsTheOlderNodeFirst(t *testing.T) {
	const ttl = time.Minute
	clock := &leaping{VirtualClock: lifecycle.NewVirtualClock(epoch)}
	began := make(chan context.Context)
	var launches atomic.Int64
	var causeBefore error // of the older node's context, when the newer node begins
	var older context.Context
	e := newEngine(t, newMemory(clock), options{TTL: ttl, Clock: clock}, act("work", func(ctx context.Context) error {
		if launches.Add(1) == 1 {
			began <- ctx
			<-ctx.Done()
			return context.Cause(ctx)
		}
		causeBefore = context.Cause(older)
		return nil
	}))
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- e.Run(ctx) }()
	defer func() {
		stop()
		if err := <-over; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
	e.Wake()
	older = <-began
	clock.by.Store(int64(2 * ttl))
	e.Wake() // the dispatcher looks before the heartbeat does
	r, err := e.Await(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, r, run.Done)
	clock.Advance(ttl) // the heartbeat, late
	if n := launches.Load(); n != 2 || !errors.Is(causeBefore, lifecycle.ErrClaimLost) {
		t.Errorf("the newer of %d nodes began while the older one's context had ended with %v, want ErrClaimLost", n, causeBefore)
	}
}
