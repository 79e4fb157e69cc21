package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/claim"
)

// A group that the server is away for waits for it twice at most, not once for each member, and its members are
// answered with what may be done about it. Whatever is sent again afterwards takes effect once.
func TestAGroupDoesNotWaitForAnOutageOnceForEachMember(t *testing.T) {
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
				if took := time.Since(asked); took > members*patience/3 {
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

// What a group did when its answer was lost is not known, whatever its members meet when they are sent once more:
// nobody is told that nothing came of it.
func TestAnUnknownOutcomeStaysOneWhenTheServerIsAwayAfterwards(t *testing.T) {
	const members = 5
	p, dsn := newProxy(t)
	a := through(t, dsn, pgx.QueryExecModeCacheStatement)
	s := newStore(t, a, postgres.Options{PollOnly: true, RetryTimeout: 100 * time.Millisecond})
	// lost loses the answer of the next statement, and lets no other through for as long as do lasts.
	lost := func(do func()) {
		t.Helper()
		n := 0
		p.mu.Lock()
		p.each = func() *fault {
			if n++; n == 1 {
				return &fault{answered: true, settled: true}
			}
			return &fault{code: "53300"}
		}
		p.mu.Unlock()
		do()
		p.mu.Lock()
		p.each = nil
		p.mu.Unlock()
	}
	stored := func(seq int) (n int) {
		t.Helper()
		if err := a.raw.QueryRow(t.Context(), "select count(*) from "+nameOf(s, "runs")+" where checkpoint_seq = $1", seq).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	check := func(op string, seq int, errs []error) {
		t.Helper()
		if n := stored(seq); n != members {
			t.Fatalf("%s: %d of %d took effect, so this test shows nothing", op, n, members)
		}
		for i, err := range errs {
			if backend.Classify(err) != backend.Unknown {
				t.Errorf("%s: member %d is stored, and answered as %v: %v", op, i, backend.Classify(err), err)
			}
		}
	}
	ins := make([]backend.Initialization, members)
	commits := make([]backend.Commit, members)
	for i := range ins {
		ins[i] = draft(fmt.Sprint("run-", i))
	}
	var errs []error
	lost(func() {
		for _, r := range s.InsertRuns(t.Context(), backend.Tenantless(), ins) {
			errs = append(errs, r.Err)
		}
	})
	check("insert", 1, errs)
	batch, err := s.ClaimDue(t.Context(), claim.Policy{TTL: time.Minute, Limit: members, MaxAttempts: 3, Now: began})
	if err != nil || len(batch.Leases) != members {
		t.Fatalf("%d claims, %v", len(batch.Leases), err)
	}
	for i, l := range batch.Leases {
		k := slices.IndexFunc(ins, func(in backend.Initialization) bool { return in.Document.ID == l.Run })
		commits[i] = ending(ins[k].Document, l.Token)
	}
	errs = nil
	lost(func() {
		for _, r := range s.Commits(t.Context(), backend.System(), commits) {
			errs = append(errs, r.Err)
		}
	})
	check("commit", 2, errs)
	lost(func() { _, err = s.InsertRun(t.Context(), backend.Tenantless(), draft("single")) })
	if n := stored(1); n != 1 || backend.Classify(err) != backend.Unknown {
		t.Errorf("a single start: %d stored, answered as %v: %v", n, backend.Classify(err), err)
	}
}
