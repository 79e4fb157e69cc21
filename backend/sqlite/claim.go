package sqlite

import (
	"context"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// ClaimDue implements backend.Runs (clauses K1 to K5).
func (s *Store) ClaimDue(ctx context.Context, p claim.Policy) (claim.Batch, error) {
	b, err := s.claim(ctx, p, false)
	return b.Batch, err
}

// ClaimDueDocuments implements backend.ClaimDocuments (clause K6).
func (s *Store) ClaimDueDocuments(ctx context.Context, p claim.Policy) (backend.ClaimedBatch, error) {
	return s.claim(ctx, p, true)
}

func (s *Store) claim(ctx context.Context, p claim.Policy, documents bool) (backend.ClaimedBatch, error) {
	p, err := backend.CheckPolicy(p, s.Features())
	if err != nil {
		return backend.ClaimedBatch{}, err
	}
	a := &acquisition{s: s, policy: p}
	err = s.writer.do(ctx, &operation{name: "claim due runs", run: func(c *conn, _ bool) error {
		return a.run(c, documents)
	}})
	if err != nil {
		return backend.ClaimedBatch{}, err
	}
	for i, body := range a.bodies {
		d, err := s.workable(a.batch.Leases[i], body)
		a.batch.Documents = append(a.batch.Documents, backend.ClaimedDocument{Document: d, Err: err})
	}
	return a.batch, nil
}

// acquisition is one ClaimDue at work.
type acquisition struct {
	s      *Store
	policy claim.Policy
	batch  backend.ClaimedBatch
	bodies [][]byte
}

func (a *acquisition) run(c *conn, documents bool) error {
	a.batch, a.bodies = backend.ClaimedBatch{}, nil
	p := a.policy
	p.Now = a.s.clock.or(p.Now)
	a.batch.Now = p.Now
	due, err := findDue(c, p)
	if err != nil {
		return err
	}
	taken := claim.Select(due.candidates, p, due.held)
	point("claim.selected")
	for _, i := range taken {
		if err := a.take(c, p, due.rows[i], due.candidates[i].Class, documents); err != nil {
			return err
		}
	}
	if p.Fairness != claim.Interleave {
		return nil
	}
	return serve(c, due, taken)
}

// serve keeps whose turn it was, for the rotation of clause K5: in the file, so that the
// claims of every process on it are one rotation.
func serve(c *conn, due *due, taken []int) error {
	served := make(map[backend.Owner]bool)
	for _, i := range taken {
		owner := due.candidates[i].Owner
		if served[owner] {
			continue
		}
		served[owner] = true
		if _, err := c.exec(context.Background(), stTurnTake, tenantOf(owner)); err != nil {
			return err
		}
	}
	return nil
}

func (a *acquisition) take(c *conn, p claim.Policy, r storedRun, class claim.Class, documents bool) error {
	ctx := context.Background()
	next, poisoned := r.state.Acquire(p.Now, a.s.opts.NewToken(), p.MaxAttempts)
	if err := storeState(ctx, c, r.number, next); err != nil {
		return err
	}
	point("claim.row")
	if poisoned {
		a.batch.Poisoned = append(a.batch.Poisoned, claim.PoisonedRun{
			Run: r.id, Owner: r.owner, GraphID: r.graphID, GraphHash: r.graphHash, Poison: next.Poison,
		})
		return nil
	}
	a.batch.Leases = append(a.batch.Leases, claim.Lease{
		Run: r.id, Owner: r.owner, GraphID: r.graphID, GraphHash: r.graphHash, Seq: r.seq,
		Token: next.Token, ClaimedAt: next.ClaimedAt, Attempt: next.Attempts, TTL: p.TTL, Class: class,
	})
	if !documents {
		return nil
	}
	a.bodies = append(a.bodies, nil)
	return c.query(ctx, stDocumentOf, func(d row) error {
		a.bodies[len(a.bodies)-1] = d.blob(0)
		return nil
	}, r.number)
}

// storedRun is a run's row as the claim operations see it.
type storedRun struct {
	number             int64
	id                 string
	owner              backend.Owner
	graphID, graphHash string
	status             run.Status
	state              claim.State
	seq                int64
}

// scanRun reads the columns of the due_* statements and of run_state.
func scanRun(r row) storedRun {
	return storedRun{
		number: r.int(0), id: r.text(1), owner: ownerOf(r.text(2)), graphID: r.text(3), graphHash: r.text(4),
		status: run.Status(r.text(5)),
		state: claim.State{
			Wake: r.instant(6), Token: claim.Token(r.text(7)), ClaimedAt: r.instant(8),
			Attempts: int(r.int(9)), Abandons: int(r.int(10)),
			Poison: claim.Poison{At: r.instant(11), Reason: r.text(12)},
		},
		seq: r.int(13),
	}
}

func storeState(ctx context.Context, c *conn, number int64, st claim.State) error {
	_, err := c.exec(ctx, stClaimStore, number, micros(st.Wake), orNull(string(st.Token)), micros(st.ClaimedAt),
		int64(st.Attempts), int64(st.Abandons), micros(st.Poison.At), orNull(st.Poison.Reason))
	return err
}

// RefreshClaim implements backend.Runs (clause K7).
func (s *Store) RefreshClaim(ctx context.Context, id string, token claim.Token, now time.Time) error {
	op, err := s.refresh(id, token, now)
	if err != nil {
		return err
	}
	return s.writer.do(ctx, op)
}

// RefreshClaims implements backend.Batches. Another writer locks the whole file, so a
// member is busy only when all are, after Options.BusyTimeout.
func (s *Store) RefreshClaims(ctx context.Context, claims []backend.Held, now time.Time) []error {
	errs := make([]error, len(claims))
	ops := make([]*operation, len(claims))
	for n, held := range claims {
		ops[n], errs[n] = s.refresh(held.Run, held.Token, now)
	}
	s.doAll(ctx, ops, func(n int, err error) { errs[n] = err })
	return errs
}

func (s *Store) refresh(id string, token claim.Token, now time.Time) (*operation, error) {
	if err := backend.CheckClaim(id, token); err != nil {
		return nil, err
	}
	now = claim.Instant(now)
	return &operation{name: "refresh claim", run: func(c *conn, _ bool) error {
		n, err := c.exec(context.Background(), stClaimRefresh, id, string(token), s.clock.or(now).UnixMicro())
		if err == nil && n == 0 {
			err = backend.ErrClaimLost
		}
		return err
	}}, nil
}

// ReleaseClaim implements backend.Runs (clause K8).
func (s *Store) ReleaseClaim(ctx context.Context, id string, token claim.Token, p claim.ReleasePolicy) error {
	p, err := backend.CheckRelease(id, token, p)
	if err != nil {
		return err
	}
	return s.writer.do(ctx, &operation{name: "release claim", wakes: true, run: func(c *conn, _ bool) error {
		r, err := findRun(c, id)
		if err != nil || r == nil {
			return err
		}
		p := p
		p.Now = s.clock.or(p.Now)
		next, changed := r.state.Release(token, p)
		if !changed {
			return nil
		}
		point("release.before")
		return storeState(context.Background(), c, r.number, next)
	}})
}

// AbandonClaim implements backend.Runs (clause K9).
func (s *Store) AbandonClaim(ctx context.Context, id string, token claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	p, err := backend.CheckAbandon(id, token, p)
	if err != nil {
		return claim.Stale, err
	}
	var d claim.Disposition
	err = s.writer.do(ctx, &operation{name: "abandon claim", wakes: true, run: func(c *conn, _ bool) error {
		d = claim.Stale
		p := p
		p.Now = s.clock.or(p.Now)
		if err := p.Validate(); err != nil {
			return err // the clock has passed retry-at
		}
		r, err := findRun(c, id)
		if err != nil || r == nil {
			return err
		}
		var next claim.State
		if next, d = r.state.Abandon(token, r.seq, p); d == claim.Stale {
			return nil
		}
		point("abandon.before")
		err = storeState(context.Background(), c, r.number, next)
		point("abandon.after")
		return err
	}})
	if err != nil {
		return claim.Stale, err
	}
	return d, nil
}

// RetryPoisonedRun implements backend.Runs (clause K10).
func (s *Store) RetryPoisonedRun(ctx context.Context, scope backend.Scope, id string, now time.Time) error {
	if err := backend.CheckRun(scope, id); err != nil {
		return err
	}
	now = claim.Instant(now)
	return s.writer.do(ctx, &operation{name: "retry poisoned run", wakes: true, run: func(c *conn, _ bool) error {
		r, err := findRun(c, id)
		switch {
		case err != nil:
			return err
		case r == nil || !scope.Sees(r.owner):
			return backend.ErrNotFound
		case r.status.Terminal():
			return backend.ErrInactiveRun
		}
		next, changed := r.state.Recover(s.clock.or(now))
		if !changed {
			return nil
		}
		return storeState(context.Background(), c, r.number, next)
	}})
}

// findRun is a run's row, nil when there is none.
func findRun(c *conn, id string) (found *storedRun, err error) {
	err = c.query(context.Background(), stRunState, func(r row) error {
		one := scanRun(r)
		found = &one
		return nil
	}, id)
	return found, err
}
