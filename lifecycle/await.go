package lifecycle

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/run"
)

// Await waits until nothing more will happen to the run by itself: it is finished, or needs an
// answer (returned without error), or is poisoned (returned with *PoisonedError). When ctx ends
// first it returns the run as it was seen last, with an *AwaitError that wraps ctx's cause.
//
// A run that this engine drives, or ends, is answered at once and without a read. What another process
// does is told by the backend's announcements, where it makes any, and otherwise found within
// Config.PollInterval. The answer was true at some instant of the call: a run that needed an answer may
// have been given one since.
func (c *Client) Await(ctx context.Context, id string) (*Run, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	e := c.engine
	w := e.watch
	me := w.join(id, c.owner)
	defer w.leave(me)
	var last *Run
	if v := e.beat.driver(id, c.owner); v != nil {
		last = v.seen()
		if !e.wait(ctx, e.cfg.PollInterval, me.told) {
			return last, awaitError(ctx, id, last)
		}
	}
	for delay := awaitFirst; ; delay = min(2*delay, e.cfg.PollInterval) {
		if r := w.handed(me); r != nil {
			return r, nil
		}
		r, err := c.Inspect(ctx, id)
		switch {
		case err != nil && ctx.Err() != nil:
			return last, awaitError(ctx, id, last)
		case err != nil:
			return nil, err
		case !r.Poison.At.IsZero():
			return r, &PoisonedError{Run: id, Poison: r.Poison}
		case atRest(r.Document):
			return r, nil
		}
		last = r
		if w.subscribed.Load() || e.beat.driver(id, c.owner) != nil {
			delay = e.cfg.PollInterval
		}
		if !e.wait(ctx, delay, me.told) {
			return last, awaitError(ctx, id, last)
		}
	}
}

// atRest reports whether nothing more happens to the run by itself.
func atRest(d *run.Document) bool { return d.Status.Terminal() || d.NeedsAnswer() }

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
	// sparedPerLook is how many waiters that an announcement does not concern cost as much as a
	// read.
	sparedPerLook = 100
)

// watch wakes those who wait for a run: at once for a commit of this engine, and by the
// backend's announcements, while anybody waits, for everyone else's. Nothing depends on it:
// whoever waits also polls.
type watch struct {
	engine     *Engine
	waiters    atomic.Int64
	subscribed atomic.Bool
	joined     atomic.Int64 // waiters there ever were

	mu     sync.Mutex
	runs   map[string][]*waiter
	cancel context.CancelFunc // of the subscription
}

// waiter is one call of Await.
type waiter struct {
	run    string
	owner  backend.Owner
	number int64 // among all there ever were
	told   event // there is a reason to look
	rest   *Run  // as it was committed here; under the watch's lock
}

func newWatch(e *Engine) *watch { return &watch{engine: e, runs: map[string][]*waiter{}} }

func (w *watch) join(id string, owner backend.Owner) *waiter {
	me := &waiter{run: id, owner: owner, told: w.engine.scheduler.NewEvent()}
	w.mu.Lock()
	defer w.mu.Unlock()
	me.number = w.joined.Add(1)
	w.runs[id] = append(w.runs[id], me)
	w.waiters.Add(1)
	if w.cancel == nil && w.engine.features.Wakes != nil {
		ctx, cancel := context.WithCancel(context.Background())
		w.cancel = cancel
		w.engine.scheduler.Go(func() { w.listen(ctx) })
	}
	return me
}

func (w *watch) leave(me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters.Add(-1)
	left := w.runs[me.run]
	for i, other := range left {
		if other == me {
			left = slices.Delete(left, i, i+1)
			break
		}
	}
	if len(left) > 0 {
		w.runs[me.run] = left
		return
	}
	delete(w.runs, me.run)
	if len(w.runs) == 0 && w.cancel != nil {
		w.cancel()
		w.cancel = nil
	}
}

// mark is taken before a commit is sent: whoever waits by then waited when it took effect.
func (w *watch) mark() int64 { return w.joined.Load() }

// committed tells those of the owner who await the run of a commit that brought it to rest. An end
// is for good, so everybody may have it; any other rest may be over by now, and only who waited before
// the commit may have it for an answer, while the others look for themselves.
func (w *watch) committed(owner backend.Owner, p *run.Proposal, mark int64) {
	d := p.Document
	if w.waiters.Load() == 0 || !atRest(d) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.runs[d.ID] {
		if n.owner != owner {
			continue
		}
		if d.Status.Terminal() || n.number <= mark && p.Schedule.Kind != checkpoint.Retain {
			n.rest = &Run{Document: d, Owner: owner, Wake: wakeOf(*p)}
		}
		n.told.Set()
	}
}

// handed is the rest that was handed to a waiter, if any was.
func (w *watch) handed(me *waiter) *Run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return me.rest
}

// look makes those who await one run look: it is not driven here any more, or was poisoned.
func (w *watch) look(id string) {
	if w.waiters.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.runs[id] {
		n.told.Set()
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

// listen tells everyone of the backend's announcements whose run is not driven here, not so often that
// their reads burden it.
func (w *watch) listen(ctx context.Context) {
	announced, err := w.engine.subscribe(ctx)
	if err != nil {
		return // polling serves
	}
	w.subscribed.Store(true)
	defer w.subscribed.Store(false)
	for range announced {
		looks, spared := w.announce()
		if looks += spared / sparedPerLook; looks > fewWaiters && !w.engine.sleep(ctx, time.Duration(looks)*time.Second/looksPerSecond) {
			return
		}
	}
}

// announce passes an announcement on, and answers how many look, and how many need not.
func (w *watch) announce() (looks, spared int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, waiters := range w.runs {
		for _, n := range waiters {
			if w.engine.beat.driver(id, n.owner) != nil {
				spared++
				continue
			}
			looks++
			n.told.Set()
		}
	}
	return looks, spared
}
