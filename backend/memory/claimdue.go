package memory

import (
	"context"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// ClaimDue claims due runs (clauses K1 to K5). The index is locked from the first look to
// the last change, so the batch is one atomic operation.
func (s *Store) ClaimDue(ctx context.Context, p claim.Policy) (claim.Batch, error) {
	batch, err := s.claimDue(ctx, p, nil)
	return batch, err
}

// ClaimDueDocuments claims due runs with their documents (feature X3).
func (s *Store) ClaimDueDocuments(ctx context.Context, p claim.Policy) (backend.ClaimedBatch, error) {
	var documents []backend.ClaimedDocument
	batch, err := s.claimDue(ctx, p, func(c *committed) {
		d, err := c.read()
		if err == nil {
			// Refused before anything is executed that could not be stored.
			if err = run.CheckWritable(d, s.format); err != nil {
				d = nil
			}
		}
		documents = append(documents, backend.ClaimedDocument{Document: d, Err: err})
	})
	return backend.ClaimedBatch{Batch: batch, Documents: documents}, err
}

func (s *Store) claimDue(ctx context.Context, p claim.Policy, leased func(*committed)) (claim.Batch, error) {
	p, err := backend.CheckPolicy(p, s.Features())
	if err != nil {
		return claim.Batch{}, err
	}
	if err := s.enter(ctx, "claim: begun"); err != nil {
		return claim.Batch{}, err
	}
	p.Now = s.clock.or(p.Now)
	c := candidates{store: s, policy: p}
	for _, id := range p.Filter.Runs {
		if r := s.row(id); r != nil {
			c.named = append(c.named, r)
		}
	}
	batch := c.claim(leased)
	if len(batch.Poisoned) > 0 {
		s.watchers.announce()
	}
	s.yield("claim: done")
	return batch, nil
}

func classOf(st *claim.State) claim.Class {
	if st.Token != "" {
		return claim.Expired
	}
	return claim.Ready
}

// candidates are the runs among which one claim selects: not all that are due, but those
// that claim.Select could take if it were shown all. They are locked.
type candidates struct {
	store  *Store
	policy claim.Policy
	named  []*row // the runs that the filter names
	rows   []*row
	// room is what OwnerCap leaves, by owner; nil without a cap.
	room map[*owner]int
}

// claim is the atomic operation.
func (c *candidates) claim(leased func(*committed)) claim.Batch {
	s := c.store
	s.due.mu.Lock()
	defer s.due.mu.Unlock()
	defer c.unlock()
	c.gather()
	batch := claim.Batch{Now: c.policy.Now}
	for _, r := range c.selected() {
		was := r.now.Load()
		next, poisoned := was.claim.Acquire(c.policy.Now, s.tokens.next(), c.policy.MaxAttempts)
		graph := was.document.Graph
		if poisoned {
			batch.Poisoned = append(batch.Poisoned, claim.PoisonedRun{
				Run: r.id, Owner: r.owner.id, GraphID: graph.ID, GraphHash: graph.Hash, Poison: next.Poison,
			})
		} else {
			if batch.Leases == nil {
				batch.Leases = make([]claim.Lease, 0, min(c.policy.Limit, len(c.rows)))
			}
			batch.Leases = append(batch.Leases, lease(r, was.committed, &next, c.policy.TTL, classOf(&was.claim)))
			if leased != nil {
				leased(was.committed)
			}
		}
		r.now.Store(&snapshot{committed: was.committed, claim: next})
		s.due.set(r, &was.graph.due, &next)
		if c.policy.Fairness == claim.Interleave {
			s.due.turns++
			r.owner.turn = s.due.turns
		}
	}
	return batch
}

func lease(r *row, c *committed, st *claim.State, ttl time.Duration, class claim.Class) claim.Lease {
	return claim.Lease{
		Run: r.id, Owner: r.owner.id, GraphID: c.document.Graph.ID, GraphHash: c.document.Graph.Hash,
		Seq: c.document.Seq, Token: st.Token, ClaimedAt: st.ClaimedAt,
		Attempt: st.Attempts, TTL: ttl, Class: class,
	}
}

func (c *candidates) unlock() {
	for _, r := range c.rows {
		r.lock.release()
	}
}

// add takes a run unless somebody else holds its row (clause K4).
func (c *candidates) add(r *row, class int) bool {
	if !r.lock.try() {
		return false
	}
	c.rows = append(c.rows, r)
	if class == byWake && c.room != nil {
		c.room[r.owner] = c.roomOf(r.owner) - 1
	}
	return true
}

func (c *candidates) roomOf(o *owner) int {
	if left, known := c.room[o]; known {
		return left
	}
	return c.policy.OwnerCap - o.claims
}

// until is the last instant at which a run of the class is due (clause K1): a wake at
// now, a claimed-at strictly before now - ttl.
func (c *candidates) until(class int) int64 {
	now := micros(c.policy.Now)
	if class == byWake {
		return now
	}
	// The TTL may end between two microseconds; claimed-at never does.
	return now - c.policy.TTL.Microseconds() - 1
}

// admit tells whether runs of a lane may be taken, as things stand; nil is all lanes.
func (c *candidates) admit(class int) func(*lane) bool {
	if c.room == nil && len(c.policy.Filter.Graphs) == 0 {
		return nil
	}
	return func(l *lane) bool {
		if class == byWake && c.room != nil && c.roomOf(l.owner) <= 0 {
			return false
		}
		return c.inFilter(l)
	}
}

func (c *candidates) inFilter(l *lane) bool {
	filter := c.policy.Filter.Graphs
	for _, f := range filter {
		if f.ID == l.ref.ID && (f.Hash == "" || f.Hash == l.ref.Hash) {
			return true
		}
	}
	return len(filter) == 0
}

func (c *candidates) gather() {
	if c.policy.OwnerCap > 0 {
		c.room = make(map[*owner]int)
	}
	switch {
	case len(c.policy.Filter.Runs) > 0:
		c.gatherNamed()
	case c.policy.Fairness == claim.Interleave:
		c.gatherInterleaved()
	default:
		for class := range classes {
			c.gatherOldest(c.store.due.over(class, c.until(class), c.admit(class)), class, c.policy.Limit)
		}
	}
}

// gatherOldest adds the first n free runs of a walk.
func (c *candidates) gatherOldest(w *walk, class, n int) {
	for n > 0 {
		e, ok := w.next()
		if !ok {
			return
		}
		if c.add(e.row, class) {
			n--
		}
	}
}

// gatherNamed adds the runs that the filter names, as far as they are due. A run that is
// named twice is locked the second time.
func (c *candidates) gatherNamed() {
	for _, r := range c.named {
		at := r.due
		if at.lane != nil && at.at <= c.until(at.class) && c.inFilter(at.lane) {
			c.add(r, at.class)
		}
	}
}

// selected are the candidates that are taken, by claim.Select where there is a choice.
func (c *candidates) selected() []*row {
	if len(c.rows) <= c.policy.Limit && c.room == nil {
		return c.rows
	}
	list := make([]claim.Candidate, len(c.rows))
	for i, r := range c.rows {
		st := &r.now.Load().claim
		list[i] = claim.Candidate{ID: r.id, Owner: r.owner.id, Class: classOf(st), Turn: r.owner.turn}
		if list[i].At = st.Wake; st.Token != "" {
			list[i].At = st.ClaimedAt
		}
	}
	taken := claim.Select(list, c.policy, c.held())
	rows := make([]*row, len(taken))
	for i, k := range taken {
		rows[i] = c.rows[k]
	}
	return rows
}

// held tells how many claims an owner of a candidate holds.
func (c *candidates) held() func(backend.Owner) int {
	if c.room == nil {
		return nil
	}
	claims := make(map[backend.Owner]int)
	for _, r := range c.rows {
		claims[r.owner.id] = r.owner.claims
	}
	return func(o backend.Owner) int { return claims[o] }
}
