package lifecycle

import (
	"slices"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// slot is one of Run's, kept for a run that is about to be started as claimed. A nil slot is none.
type slot struct {
	session *session
	used    bool
}

// reserve takes a free slot for the start of a run that can begin here and now, unless it would be
// taken from runs that are due already. It answers nil when the run is to be stored as due.
func (e *Engine) reserve(owner backend.Owner, p *program, init run.Proposal) *slot {
	s := e.serving.session.Load()
	// How many claims an owner holds is counted by claims only.
	if s == nil || !e.features.StartClaimed || e.cfg.OwnerCap > 0 || !s.admits(init.Document) || wakeOf(init).After(init.Now) {
		return nil
	}
	if _, err := p.bind(e); err != nil {
		return nil // somebody else can run it, perhaps
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spare() < 1 || !s.short || s.closing() || !s.mayClaim() {
		return nil
	}
	s.active++
	return &slot{session: s}
}

// spare is how many slots are neither used, nor asked for by the claim in flight, nor needed by the claim
// that is wanted: one is left to that, or it would not find out that more is due than there are slots.
// The caller holds the lock.
func (s *session) spare() int {
	spare := s.free() - s.asked
	if s.again {
		spare--
	}
	return spare
}

// toAsk is for how many of the free slots a claim asks. While little is due, half are left to what is
// started meanwhile; a claim that fills its half is followed by one for all. The caller holds the lock.
func (s *session) toAsk(free int) int {
	if s.dispatcher != nil && s.short && s.engine.features.StartClaimed && s.engine.cfg.OwnerCap == 0 {
		return (free + 1) / 2
	}
	return free
}

// admits reports whether the session's filter lets the run be driven here.
func (s *session) admits(d *run.Document) bool {
	return len(s.filter.Graphs) == 0 || slices.ContainsFunc(s.filter.Graphs, func(f claim.GraphFilter) bool {
		return f.ID == d.Graph.ID && (f.Hash == "" || f.Hash == d.Graph.Hash)
	})
}

// use drives the run that was started as claimed.
func (t *slot) use(lease claim.Lease, d *run.Document, now instants, sent time.Time) {
	s := t.session
	t.used = true
	v := newVehicle(s, lease, now, sent)
	v.claimed, v.fresh = &backend.ClaimedDocument{Document: d}, true
	v.reached.Store(d)
	s.engine.stats.claims.Add(1)
	s.engine.beat.hold([]*vehicle{v})
	s.mu.Lock()
	s.call(v)
	s.mu.Unlock()
}

// giveUp frees a slot that was not used.
func (t *slot) giveUp() {
	if t == nil || t.used {
		return
	}
	s := t.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	if s.stopping() || s.failure != nil {
		s.settleOver()
		return
	}
	s.dispatcher.woken.Set()
}
