package lifecycle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

// simulation decides every interleaving of a fleet of engines. Whatever the engines do at the same
// time are tasks, of which exactly one goes on at a time, from one point where it waits to
// the next; who that is, when the clock moves, and what goes wrong, is drawn from a seed. It runs in
// a bubble, where whoever is not at such a point is at rest before the next choice.
type simulation struct {
	t     *testing.T
	rng   *rand.Rand
	hosts []*host
	story strings.Builder

	mu    sync.Mutex
	now   time.Time
	tasks []*task
	steps int
}

// host is a process with an engine: it has a clock of its own, can be frozen, and can die.
type host struct {
	sim    *simulation
	id     int
	skew   time.Duration
	made   int // tasks, so far
	frozen bool
	dead   bool
	ever   bool // it was frozen at some time
	thawed time.Time
	wakes  []chan struct{}
	fault  string // planted in what its engine is built on

	engine   *Engine
	leased   map[string]claim.Token // the last token of each run that it got
	last     *backend.Commit
	stopping bool // it was told to, at stopped
	stopped  time.Time
	over     bool // and has done so
	failed   bool // a release of it
}

// task is a goroutine at a point where it waits, a goroutine to be, or a timer.
type task struct {
	host  *host
	id    int
	what  string
	ready bool
	at    time.Time // of a timer, by the simulation's clock
	timer bool
	begin func()        // a goroutine to be
	gone  chan struct{} // a goroutine that waits
}

func (s *simulation) tell(format string, args ...any) {
	fmt.Fprintf(&s.story, "%10v ", s.now.Sub(simEpoch))
	fmt.Fprintf(&s.story, format+"\n", args...)
}

var simEpoch = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// add makes a task of the host. The caller holds the lock.
func (h *host) add(t *task) *task {
	h.made++
	t.host, t.id = h, h.made
	h.sim.tasks = append(h.sim.tasks, t)
	return t
}

func (s *simulation) remove(t *task) bool {
	i := slices.Index(s.tasks, t)
	if i < 0 {
		return false
	}
	s.tasks = slices.Delete(s.tasks, i, i+1)
	return true
}

// Go implements scheduler.
func (h *host) Go(f func()) {
	h.sim.mu.Lock()
	defer h.sim.mu.Unlock()
	h.add(&task{what: "begins", ready: true, begin: f})
	if h.fault == "double launch" && h.made > 40 && h.made%8 == 0 {
		h.add(&task{what: "begins", ready: true, begin: f})
	}
}

// Each implements scheduler: a value makes a task.
func (h *host) Each(values <-chan struct{}, f func()) {
	go func() {
		for range values {
			h.Go(f)
		}
	}()
}

// NewEvent implements scheduler.
func (h *host) NewEvent() event { return &simEvent{host: h} }

type simEvent struct {
	host    *host
	set     bool
	waiting *task
}

func (e *simEvent) Set() {
	e.host.sim.mu.Lock()
	defer e.host.sim.mu.Unlock()
	if e.host.fault == "lost wake" && e.host.made%10 == 0 {
		return
	}
	if e.waiting != nil {
		e.waiting.ready = true
		return
	}
	e.set = true
}

// Wait always waits, also for what is set already, so that it makes no difference which of two things
// that happen in one step comes first.
func (e *simEvent) Wait() {
	s := e.host.sim
	s.mu.Lock()
	e.waiting = e.host.add(&task{what: "goes on", ready: e.set, gone: make(chan struct{})})
	t := e.waiting
	s.mu.Unlock()
	<-t.gone
	s.mu.Lock()
	e.set, e.waiting = false, nil
	s.mu.Unlock()
	e.host.live()
}

// point lets others go on.
func (h *host) point(what string) {
	h.sim.mu.Lock()
	t := h.add(&task{what: what, ready: true, gone: make(chan struct{})})
	h.sim.mu.Unlock()
	<-t.gone
	h.live()
}

// live ends the goroutine of a host that is dead.
func (h *host) live() {
	if h.dead {
		runtime.Goexit()
	}
}

// Now implements Clock.
func (h *host) Now() time.Time {
	h.sim.mu.Lock()
	defer h.sim.mu.Unlock()
	return h.sim.now.Add(h.skew)
}

// AfterFunc implements Clock.
func (h *host) AfterFunc(d time.Duration, f func()) func() bool {
	s := h.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case h.fault == "a shutdown timeout that is ignored" && d == 10*time.Second && h.stopping:
		d = 24 * time.Hour
	case h.fault == "late heartbeat" && d == simTTL/12:
		d *= 30
	case h.fault == "lost poll" && d > time.Second && d < 3*time.Second:
		d = 24 * time.Hour
	}
	t := h.add(&task{what: "timer", timer: true, at: s.now.Add(max(d, 0)), begin: f})
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.remove(t)
	}
}

// sleep is how a node waits.
func (h *host) sleep(ctx context.Context, d time.Duration) error {
	ev := h.NewEvent()
	stop := h.AfterFunc(d, ev.Set)
	stopCtx := context.AfterFunc(ctx, ev.Set)
	ev.Wait()
	stop()
	stopCtx()
	return context.Cause(ctx)
}

// step lets one task go on, moving the clock when none can. It reports false when nothing is left.
func (s *simulation) step() bool {
	s.steps++
	var can []*task
	var next *task
	for _, t := range s.tasks {
		switch {
		case t.host.frozen || t.host.dead:
		case t.timer && t.at.After(s.now):
			if next == nil || t.at.Before(next.at) {
				next = t
			}
		case t.timer || t.ready:
			can = append(can, t)
		}
	}
	if len(can) == 0 {
		if next == nil {
			return false
		}
		s.now = next.at
		return true
	}
	slices.SortFunc(can, func(a, b *task) int {
		if a.host != b.host {
			return a.host.id - b.host.id
		}
		return a.id - b.id
	})
	t := can[s.rng.IntN(len(can))]
	s.tell("host %d: task %d %s", t.host.id, t.id, t.what)
	s.release(t)
	return true
}

// release lets a task go on until it waits.
func (s *simulation) release(t *task) {
	s.mu.Lock()
	s.remove(t)
	s.mu.Unlock()
	if t.gone != nil {
		close(t.gone)
	} else {
		go t.begin()
	}
	synctest.Wait()
}

// kill ends a host at once, whatever it is doing.
func (s *simulation) kill(h *host) {
	h.dead = true
	for _, ch := range h.wakes {
		close(ch)
	}
	h.wakes = nil
	for {
		i := slices.IndexFunc(s.tasks, func(t *task) bool { return t.host == h })
		if i < 0 {
			return
		}
		t := s.tasks[i]
		if t.gone != nil {
			s.release(t)
		} else {
			s.remove(t)
		}
	}
}
