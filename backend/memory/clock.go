package memory

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// clock is the backend's clock (feature X6): monotone non-decreasing, whatever the
// clock below it does.
type clock struct {
	read func() time.Time
	last atomic.Int64 // the latest answer, in microseconds
}

func (c *clock) start(read func() time.Time) {
	c.read = read
	c.last.Store(math.MinInt64)
}

func (c *clock) now() time.Time {
	t := c.read().UnixMicro()
	for {
		last := c.last.Load()
		if t <= last {
			return time.UnixMicro(last).UTC()
		}
		if c.last.CompareAndSwap(last, t) {
			return time.UnixMicro(t).UTC()
		}
	}
}

// or is t, or for the zero time the clock's now.
func (c *clock) or(t time.Time) time.Time {
	if t.IsZero() {
		return c.now()
	}
	return t
}

// Now is the backend's clock (feature X6).
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.enter(ctx, "now: begun"); err != nil {
		return time.Time{}, err
	}
	return s.clock.now(), nil
}
