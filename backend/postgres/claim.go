package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
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
	a := &acquisition{s: s, policy: p, documents: documents}
	acquire := a.oldest
	if p.Fairness == claim.Interleave || p.OwnerCap > 0 || !p.Filter.IsZero() {
		acquire = a.selected
	}
	// Not after an unknown outcome: that costs the runs claimed then at most one TTL and one
	// attempt, and a second claim would not find them.
	err = s.try(ctx, "claim due runs", unsent, func(db session) error {
		a.batch = backend.ClaimedBatch{}
		return acquire(ctx, db)
	})
	if err != nil {
		return backend.ClaimedBatch{}, err
	}
	if p.Now.IsZero() {
		s.floor.raise(a.batch.Now)
	}
	return a.batch, nil
}

// acquisition is one ClaimDue at work.
type acquisition struct {
	s         *Store
	policy    claim.Policy
	documents bool
	batch     backend.ClaimedBatch
}

// oldest claims by age, in one statement.
func (a *acquisition) oldest(ctx context.Context, db session) error {
	p := a.policy
	tokens := make([]string, p.Limit)
	for i := range tokens {
		tokens[i] = string(a.s.opts.NewToken())
	}
	var preferExpired *bool
	if p.Prefer != claim.NoClass {
		expired := p.Prefer == claim.Expired
		preferExpired = &expired
	}
	return a.s.run(ctx, db, stClaim, a.add, a.s.or(p.Now), a.s.floor.lowest(), p.TTL.Microseconds(), int64(p.Limit), preferExpired,
		int32(min(p.MaxAttempts, maxCount)), tokens, a.documents)
}

// maxCount bounds what is compared with the counters, which are integers of four bytes.
const maxCount = 1<<31 - 1

// add adds an outcome; a row that is nothing but the instant tells that there is none.
func (a *acquisition) add(r pgx.Rows) error {
	row, err := outcomeOf(r)
	if err != nil {
		return err
	}
	a.batch.Now = claim.Instant(row.now)
	if row.id == "" {
		return nil
	}
	o := ownerOf(row.owner)
	if row.token == "" {
		a.batch.Poisoned = append(a.batch.Poisoned, claim.PoisonedRun{
			Run: row.id, Owner: o, GraphID: row.graphID, GraphHash: row.graphHash,
			Poison: claim.Poison{At: a.batch.Now, Reason: claim.MaxAttemptsExceeded},
		})
		return nil
	}
	a.batch.Leases = append(a.batch.Leases, claim.Lease{
		Run: row.id, Owner: o, GraphID: row.graphID, GraphHash: row.graphHash, Seq: row.seq,
		Token: row.token, ClaimedAt: a.batch.Now, Attempt: int(row.attempts), TTL: a.policy.TTL, Class: claim.Class(row.class),
	})
	if a.documents {
		d, err := a.s.workable(a.batch.Leases[len(a.batch.Leases)-1], row.document)
		a.batch.Documents = append(a.batch.Documents, backend.ClaimedDocument{Document: d, Err: err})
	}
	return nil
}

// outcome is a row of a claim: nothing but the instant, or a poisoned run, which has no token, or a
// lease.
type outcome struct {
	now                           time.Time
	id, owner, graphID, graphHash string
	seq                           int64
	token                         claim.Token
	attempts, class               int32
	document                      []byte // only until the next row
}

func outcomeOf(r pgx.Rows) (outcome, error) {
	c, ok := binaryColumns(r)
	if !ok {
		return scanOutcome(r)
	}
	o := outcome{now: c.instant(0)}
	if c[1] == nil {
		return o, nil
	}
	o.id, o.owner, o.graphID, o.graphHash = string(c[1]), string(c[2]), string(c[3]), string(c[4])
	o.seq, o.token, o.attempts, o.class = c.integer(5), claim.Token(c[6]), int32(c.integer(7)), int32(c.integer(8))
	o.document = c[9]
	return o, nil
}

func scanOutcome(r pgx.Rows) (outcome, error) {
	var o outcome
	var id, owner, graphID, graphHash, token *string
	var seq *int64
	var attempts, class *int32
	if err := scan(r, &o.now, &id, &owner, &graphID, &graphHash, &seq, &token, &attempts, &class, &o.document); err != nil || id == nil {
		return o, err
	}
	o.id, o.owner, o.graphID, o.graphHash, o.token = *id, *owner, *graphID, *graphHash, claim.Token(deref(token))
	o.seq, o.attempts, o.class = *seq, *attempts, *class
	return o, nil
}
