//go:build unix

package rolling

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// limits are what the fleet's processes are started with.
type limits struct {
	ttl, poll, backoff time.Duration
	abandons           int
}

// longestBackoff is how long a run rests at most that was handed back: half of it more is jitter.
func (l limits) longestBackoff() time.Duration { return l.backoff + l.backoff/2 }

// longestWait is how long a due run waits at most: for a process that died, a backoff and a poll. A poll
// takes up to a quarter longer.
func (l limits) longestWait() time.Duration { return l.ttl + l.longestBackoff() + l.poll + l.poll/4 }

// watch looks at every unfinished run, again and again, and at what hazard H7 and the clauses on abandons
// say of it: K9, C4, C5, C6.
type watch struct {
	store  backend.Store
	limits limits

	mu      sync.Mutex
	kills   int // processes that were killed
	before  int // kills when the sample before the last one was taken
	seen    map[string]sighting
	samples int
	longest time.Duration // that a due run was seen to wait
	wrong   []string
}

// sighting is what was seen of a run.
type sighting struct {
	backend.Summary
	// killsBefore is how many had been killed when its last commit had not been seen yet.
	killsBefore int
	// handedBack is how often it was seen to be handed back since its last commit.
	handedBack int
}

// start watches until the test calls what it answers.
func (w *watch) start(t *testing.T) (stop func()) {
	w.seen = map[string]sighting{}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			if err := w.sample(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("the database cannot be looked into: %v", err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	stop = func() { cancel(); watching.Wait() }
	t.Cleanup(stop)
	return stop
}

// sample looks once.
func (w *watch) sample(ctx context.Context) error {
	w.mu.Lock()
	before := w.before
	w.before = w.kills
	w.mu.Unlock()
	now := time.Now()
	q := backend.Query{Statuses: []run.Status{run.Running, run.Waiting}, Limit: backend.MaxLimit}
	for {
		page, err := w.store.ListRuns(ctx, backend.System(), q)
		if err != nil {
			return err
		}
		w.mu.Lock()
		w.samples++
		for _, r := range page.Runs {
			w.judge(r, now, before)
		}
		w.mu.Unlock()
		if err := w.inspect(ctx, page.Runs); err != nil || !page.HasMore {
			return err
		}
		q.Before = page.Next
	}
}

// inspect reads some of the runs that were handed back, by the other way to read.
func (w *watch) inspect(ctx context.Context, runs []backend.Summary) error {
	left := 5
	for _, r := range runs {
		if r.Abandons == 0 || left == 0 {
			continue
		}
		left--
		info, err := w.store.InspectRun(ctx, backend.System(), r.Run)
		if err != nil {
			return err
		}
		if info.Abandons < r.Abandons && info.Document.Seq == r.Seq || !info.Poison.At.IsZero() {
			w.mu.Lock()
			w.found("run %s has abandons %d after %d, poison %v", r.Run, info.Abandons, r.Abandons, info.Poison)
			w.mu.Unlock()
		}
	}
	return nil
}

func (w *watch) found(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// judge compares what is seen of a run with what may be.
func (w *watch) judge(r backend.Summary, now time.Time, before int) {
	last, known := w.seen[r.Run]
	s := sighting{Summary: r, killsBefore: before}
	if known && last.Seq == r.Seq {
		s.killsBefore, s.handedBack = last.killsBefore, last.handedBack
		if r.Abandons < last.Abandons {
			w.found("run %s: abandons went from %d to %d without a commit", r.Run, last.Abandons, r.Abandons)
		}
		if r.Abandons > last.Abandons {
			s.handedBack++
		}
	} else if known && r.Seq < last.Seq {
		w.found("run %s: the sequence went from %d to %d", r.Run, last.Seq, r.Seq)
	}
	w.seen[r.Run] = s

	of := 0
	for _, there := range []bool{!r.Wake.IsZero(), !r.ClaimedAt.IsZero(), !r.Poison.At.IsZero()} {
		if there {
			of++
		}
	}
	launches := 0 // that may be counted: one of each kill that it may have met, and the one that is under way
	if r.Status == run.Running {
		launches = w.kills - s.killsBefore
		if !r.ClaimedAt.IsZero() {
			launches++
		}
	}
	switch {
	case r.Status == run.Running && of != 1, r.Status == run.Waiting && of != 0:
		w.found("run %s is %s, with wake %v, claim %v and poison %v", r.Run, r.Status, r.Wake, r.ClaimedAt, r.Poison)
	case !r.Poison.At.IsZero():
		w.found("run %s is poisoned: %v", r.Run, r.Poison)
	case r.Attempts > launches:
		w.found("run %s (%s, abandons %d) has %d attempts, and %d processes were killed meanwhile", r.Run, r.Status, r.Abandons, r.Attempts, w.kills-s.killsBefore)
	case r.Abandons >= w.limits.abandons:
		w.found("run %s has %d abandons", r.Run, r.Abandons)
	case r.Abandons > 0 && r.Wake.Sub(now) > w.limits.longestBackoff()+time.Second: // the list was read a little later
		w.found("run %s was handed back until %v, which is %v from now", r.Run, r.Wake, r.Wake.Sub(now))
	}
	switch age := now.Sub(r.ClaimedAt); {
	case !r.Wake.IsZero():
		w.longest = max(w.longest, now.Sub(r.Wake))
	case !r.ClaimedAt.IsZero() && age > w.limits.ttl: // of a process that is no more
		w.longest = max(w.longest, age)
	}
}

// killed notes that a process is about to be killed.
func (w *watch) killed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kills++
}

// handedBack is how often a run was seen to be handed back since its last commit.
func (w *watch) handedBack(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[id].handedBack
}

// wait is the longest that a due run was seen to wait since the last call.
func (w *watch) wait() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest := w.longest
	w.longest = 0
	return longest
}

// verdict is what was found.
func (w *watch) verdict() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []error
	for i, found := range w.wrong {
		if i == 20 {
			all = append(all, fmt.Errorf("and %d more", len(w.wrong)-i))
			break
		}
		all = append(all, errors.New(found))
	}
	return errors.Join(all...)
}
