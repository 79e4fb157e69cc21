package lifecycle

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// outage makes one warning of what may be thousands of failures: those of the calls that an engine
// makes on its own account, until one of them is answered again.
type outage struct {
	engine *Engine
	active atomic.Bool

	mu       sync.Mutex
	failures int
	since    time.Time
}

// failed takes note of a call that failed and will be made again, after a pause.
func (o *outage) failed(ctx context.Context, err error, pause time.Duration) {
	o.mu.Lock()
	o.failures++
	failures := o.failures
	if failures == 1 {
		o.since = o.engine.clock.Now()
		o.active.Store(true)
	}
	o.mu.Unlock()
	level := slog.LevelDebug
	if failures == 1 {
		level = slog.LevelWarn
	}
	o.engine.log.LogAttrs(ctx, level, "belay: the backend does not do what this engine asks of it, it is tried again until it does",
		slog.Int("failures", failures), slog.Duration("after", pause), slog.String(keyError, err.Error()))
}

// over takes note of a call that was answered.
func (o *outage) over(ctx context.Context) {
	if !o.active.Load() {
		return
	}
	o.mu.Lock()
	failures, since := o.failures, o.since
	o.failures = 0
	o.active.Store(false)
	o.mu.Unlock()
	if failures > 0 {
		o.engine.log.LogAttrs(ctx, slog.LevelInfo, "belay: the backend does again what this engine asks of it",
			slog.Int("failures", failures), slog.Duration("outage", o.engine.clock.Now().Sub(since)))
	}
}

// warning is the level of a record of what an outage leads to: the outage itself is the warning.
func (o *outage) warning() slog.Level {
	if o.active.Load() {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}
