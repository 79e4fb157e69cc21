package lifecycle

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Await waits until nothing more will happen to the run by itself: it is finished, or needs an
// answer (returned without error), or is poisoned (returned with *PoisonedError). When ctx ends
// first it returns the run as it was seen last, with an *AwaitError that wraps ctx's cause.
func (c *Client) Await(ctx context.Context, id string) (*Run, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	w := c.engine.watch
	changed := w.join(id)
	defer w.leave(id, changed)
	var last *Run
	for delay := awaitFirst; ; delay = min(2*delay, c.engine.cfg.PollInterval) {
		r, err := c.Inspect(ctx, id)
		switch {
		case err != nil && ctx.Err() != nil:
			return last, awaitError(ctx, id, last)
		case err != nil:
			return nil, err
		case !r.Poison.At.IsZero():
			return r, &PoisonedError{Run: id, Poison: r.Poison}
		case r.Status.Terminal() || r.NeedsAnswer():
			return r, nil
		}
		last = r
		if w.subscribed.Load() {
			delay = c.engine.cfg.PollInterval
		}
		if !c.engine.wait(ctx, delay, changed) {
			return last, awaitError(ctx, id, last)
		}
	}
}

func awaitError(ctx context.Context, id string, last *Run) error {
	err := &AwaitError{Run: id, Cause: context.Cause(ctx)}
	if last != nil {
		err.Status = last.Status
	}
	return err
}

const (
	// awaitFirst is the first pause between looks when nothing announces changes; it doubles
	// up to Config.PollInterval.
	awaitFirst = 10 * time.Millisecond
	// looksPerSecond bounds, roughly, how many reads the backend's announcements, which
	// name no run, cause among everyone who waits.
	looksPerSecond = 1000
	// fewWaiters is how many may look at every announcement.
	fewWaiters = 16
)

// watch wakes those who wait for a run: at once for a commit of this engine, and by the
// backend's announcements, while anybody waits, for everyone else's. Nothing depends on it:
// whoever waits also polls.
type watch struct {
	engine     *Engine
	waiters    atomic.Int64
	subscribed atomic.Bool

	mu     sync.Mutex
	runs   map[string][]event
	cancel context.CancelFunc // of the subscription
}

func newWatch(e *Engine) *watch { return &watch{engine: e, runs: map[string][]event{}} }

func (w *watch) join(id string) event {
	ev := w.engine.scheduler.NewEvent()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[id] = append(w.runs[id], ev)
	w.waiters.Add(1)
	if w.cancel == nil && w.engine.features.Wakes != nil {
		ctx, cancel := context.WithCancel(context.Background())
		w.cancel = cancel
		w.engine.scheduler.Go(func() { w.listen(ctx) })
	}
	return ev
}

func (w *watch) leave(id string, ev event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters.Add(-1)
	left := w.runs[id]
	for i, other := range left {
		if other == ev {
			left = append(left[:i], left[i+1:]...)
			break
		}
	}
	if len(left) > 0 {
		w.runs[id] = left
		return
	}
	delete(w.runs, id)
	if len(w.runs) == 0 && w.cancel != nil {
		w.cancel()
		w.cancel = nil
	}
}

// changed tells those who await one run.
func (w *watch) changed(id string) {
	if w.waiters.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ev := range w.runs[id] {
		ev.Set()
	}
}

// subscribe subscribes to the backend's announcements.
func (e *Engine) subscribe(ctx context.Context) (announced <-chan struct{}, err error) {
	err = answered(func() (err error) {
		announced, err = e.features.Wakes.Subscribe(ctx)
		return err
	})
	return announced, err
}

// listen tells everyone of the backend's announcements, not so often that their reads burden
// it.
func (w *watch) listen(ctx context.Context) {
	announced, err := w.engine.subscribe(ctx)
	if err != nil {
		return // polling serves
	}
	w.subscribed.Store(true)
	defer w.subscribed.Store(false)
	for range announced {
		w.mu.Lock()
		n := 0
		for _, evs := range w.runs {
			n += len(evs)
			for _, ev := range evs {
				ev.Set()
			}
		}
		w.mu.Unlock()
		if n > fewWaiters && !w.engine.sleep(ctx, time.Duration(n)*time.Second/looksPerSecond) {
			return
		}
	}
}
