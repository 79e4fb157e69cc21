package lifecycle

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
)

// claims is a store in which nothing is ever due, that counts how often it was asked and calls
// a function while the claim is in flight.
type claims struct {
	backend.Store
	asked    int
	prefers  []claim.Class
	inFlight func()
}

func (c *claims) Features() backend.Features { return backend.Features{} }

func (c *claims) ClaimDue(_ context.Context, p claim.Policy) (claim.Batch, error) {
	c.asked++
	c.prefers = append(c.prefers, p.Prefer)
	if c.inFlight != nil {
		c.inFlight()
	}
	return claim.Batch{}, nil
}

func newTestSession(t *testing.T, store backend.Store) *session {
	e, err := New(Config{Backend: store, Nodes: node.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return newSession(t.Context(), e, claim.Filter{})
}

func TestRunReleasedWhileAnEmptyClaimWasInFlightIsAskedForAgain(t *testing.T) {
	store := &claims{Store: memory.New(memory.Options{})}
	s := newTestSession(t, store)
	s.active = 1
	store.inFlight = func() {
		store.inFlight = nil
		s.finished(&vehicle{})
	}
	if v := s.next(); v != nil || store.asked != 2 || !s.ended || !s.dry {
		t.Errorf("asked %d times (ended %v, dry %v), want once more after the release, and then the end", store.asked, s.ended, s.dry)
	}
}

// calledFor is a scheduler that starts nothing, and counts what it is asked for.
type calledFor struct {
	goroutines
	n int
}

func (c *calledFor) Go(func()) { c.n++ }

func TestAClaimIsMadeBeforeNothingIsLeftToDrive(t *testing.T) {
	for _, tt := range []struct{ waiting, busy, asked, called int }{
		{waiting: 3, busy: 0, asked: 1, called: 1}, // somebody is called for those that wait meanwhile
		{waiting: 1, busy: 4, asked: 1, called: 1},
		{waiting: 2, busy: 4, asked: 0, called: 1}, // fewer than half of the slots are free
		{waiting: 1, busy: 8, asked: 0, called: 1}, // called for the claim that is wanted
	} {
		store := &claims{Store: memory.New(memory.Options{})}
		s := newTestSession(t, store)
		called := &calledFor{}
		s.engine.cfg.Concurrency, s.engine.scheduler = 10, called
		for range tt.waiting {
			s.queue = append(s.queue, &vehicle{})
		}
		s.active = tt.waiting + tt.busy
		store.inFlight = func() {
			if called.n == 0 {
				t.Errorf("%+v: nobody is called for those that wait while the claim is made", tt)
			}
		}
		first := s.queue[0]
		if v := s.next(); v != first || store.asked != tt.asked || called.n != tt.called {
			t.Errorf("%+v: asked %d times, called %d, took the first: %v", tt, store.asked, called.n, v == first)
		}
	}
}

func TestSessionThatIsOverClaimsNothing(t *testing.T) {
	store := &claims{Store: memory.New(memory.Options{})}
	s := newTestSession(t, store)
	s.next()
	if s.next(); store.asked != 1 || !s.ended {
		t.Errorf("asked %d times, ended %v", store.asked, s.ended)
	}
}

func TestClaimsThatOverlapMakeOneMoreAndNoSecondAtTheSameTime(t *testing.T) {
	store := &claims{Store: memory.New(memory.Options{})}
	s := newTestSession(t, store)
	nested := 0
	store.inFlight = func() {
		if nested++; nested == 1 {
			for range 5 {
				s.active++
				s.finished(&vehicle{})
				s.next()
			}
		}
	}
	if s.next(); store.asked != 2 {
		t.Errorf("asked %d times, want the one in flight and one more", store.asked)
	}
}

func TestPreferenceAlternatesWhileThereIsOneSlot(t *testing.T) {
	store := &claims{Store: memory.New(memory.Options{})}
	s := newTestSession(t, store)
	s.active = s.engine.cfg.Concurrency - 1
	for range 4 {
		s.again = true
		s.next()
	}
	if want := []claim.Class{claim.Ready, claim.Expired, claim.Ready, claim.Expired}; !slices.Equal(store.prefers, want) {
		t.Errorf("preferred %v, want %v", store.prefers, want)
	}
}

// counted counts the goroutines that begin and that end.
type counted struct {
	goroutines
	begun, ended atomic.Int64
}

func (c *counted) Go(f func()) {
	c.begun.Add(1)
	c.goroutines.Go(func() {
		defer c.ended.Add(1)
		f()
	})
}

// TestWorkersRestAndAreCalledAgain: what is driven takes about as many goroutines as are driven at the
// same time, however many runs follow each other, and none of them outlasts the session.
func TestWorkersRestAndAreCalledAgain(t *testing.T) {
	const runs, slots = 1000, 10
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		defer store.Close()
		nodes := node.NewRegistry()
		nodes.Add(node.Of("work", 1, func(context.Context, struct{}) (struct{}, error) {
			time.Sleep(time.Second) // all slots are taken before one is free again
			return struct{}{}, nil
		}))
		made := &counted{}
		e, err := New(Config{Backend: store, Nodes: nodes, Concurrency: slots, scheduler: made})
		if err != nil {
			t.Fatal(err)
		}
		doc, err := graph.ParseYAML([]byte(`
id: one
nodes: {work: {use: work}}
edges: {in: {from: $start, to: work}, out: {from: work, to: $finish}}
`))
		if err != nil {
			t.Fatal(err)
		}
		ref, err := e.Publish(t.Context(), doc)
		if err != nil {
			t.Fatal(err)
		}
		for range runs {
			if _, err := e.Start(t.Context(), ref, nil, StartOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		done, err := e.Drain(t.Context(), DrainOptions{})
		if err != nil || done.Commits != runs {
			t.Fatalf("%+v, %v", done, err)
		}
		synctest.Wait()
		if begun, ended := made.begun.Load(), made.ended.Load(); begun > 3*slots || ended != begun {
			t.Errorf("%d goroutines for %d runs in %d slots, of which %d ended", begun, runs, slots, ended)
		}
	})
}
