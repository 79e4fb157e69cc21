package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/claim"
)

// A group that the server is away for waits for it as a single call does, not once for each member, and its
// members are answered with what may be done about it. Whatever is sent again afterwards takes effect once.
func TestAGroupWaitsForAnOutageOnce(t *testing.T) {
	const patience, members = 300 * time.Millisecond, 30
	for name, f := range map[string]fault{
		"too many connections":        {code: "53300"},
		"broken before it is sent":    {},
		"broken after it took effect": {answered: true, settled: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, dsn := newProxy(t)
			s := newStore(t, through(t, dsn, pgx.QueryExecModeCacheStatement), postgres.Options{PollOnly: true, RetryTimeout: patience})
			away := func(yes bool) {
				p.mu.Lock()
				defer p.mu.Unlock()
				if p.each = nil; yes {
					p.each = func() *fault { return &f }
				}
			}
			ins := make([]backend.Initialization, members)
			for i := range ins {
				ins[i] = draft(fmt.Sprint("run-", i))
			}
			check := func(op string, errs []error, asked time.Time) {
				t.Helper()
				if took := time.Since(asked); took > 4*patience {
					t.Errorf("%s of %d took %v", op, members, took)
				}
				for i, err := range errs {
					if err == nil && !f.answered || err != nil && backend.Classify(err) == backend.Permanent {
						t.Errorf("%s: member %d: %v", op, i, err)
					}
				}
			}
			insert := func() (results []backend.InsertResult, errs []error) {
				results = s.InsertRuns(t.Context(), backend.Tenantless(), ins)
				for _, r := range results {
					errs = append(errs, r.Err)
				}
				return results, errs
			}
			away(true)
			asked := time.Now()
			_, errs := insert()
			check("insert", errs, asked)
			away(false)
			inserted, errs := insert()
			for i, err := range errs {
				if err != nil || inserted[i].Existing {
					t.Fatalf("sent again: member %d: %+v", i, inserted[i])
				}
			}

			batch, err := s.ClaimDue(t.Context(), claim.Policy{TTL: time.Minute, Limit: members, MaxAttempts: 3, Now: began})
			if err != nil || len(batch.Leases) != members {
				t.Fatalf("%d claims, %v", len(batch.Leases), err)
			}
			tokens := map[string]claim.Token{}
			for _, l := range batch.Leases {
				tokens[l.Run] = l.Token
			}
			commits := make([]backend.Commit, members)
			for i, in := range ins {
				commits[i] = ending(in.Document, tokens[in.Document.ID])
			}
			commit := func() (errs []error) {
				for _, r := range s.Commits(t.Context(), backend.System(), commits) {
					errs = append(errs, r.Err)
				}
				return errs
			}
			away(true)
			asked = time.Now()
			check("commit", commit(), asked)
			away(false)
			for i, err := range commit() {
				if err != nil {
					t.Errorf("sent again: member %d: %v", i, err)
				}
			}
		})
	}
}
