package lifecycle

import (
	"context"
	"slices"
	"testing"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/claim"
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
