package postgres_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/internal/pgtest"
	"github.com/belay-run/belay/proptest"
)

// TestCheckWithFailures (H20): random histories in which statement after statement fails with something
// that sending it again cures: nobody notices.
func TestCheckWithFailures(t *testing.T) {
	t.Parallel()
	const period = 17 // more than the statements of any one transaction, which would never end
	p, dsn := newProxy(t)
	var opening atomic.Bool
	statements, codes := 0, []string{"40001", "40P01", "55P03", "53300"}
	p.each = func() *fault { // under the proxy's lock
		if statements++; statements%period != 0 || opening.Load() {
			return nil
		}
		return &fault{code: codes[statements/period%len(codes)]}
	}
	a := through(t, dsn, pgx.QueryExecModeCacheStatement)
	open := opener(t, a)
	proptest.Check(t, func(t proptest.T) proptest.Opened {
		t.Helper()
		opening.Store(true)
		defer opening.Store(false)
		return open(t)
	}, proptest.Options{Rounds: 2})
	t.Logf("%d failures", p.count)
	if p.count < 20 {
		t.Error("hardly any statement failed")
	}
}

// TestCheckWithBrokenConnections (H20, T5): random histories in which connections break at drawn statements,
// before or after they took effect. A store that sends again by itself answers as if nothing had
// happened, and one that does not says that nobody knows; each call has one effect or none.
func TestCheckWithBrokenConnections(t *testing.T) {
	t.Parallel()
	for name, patience := range map[string]time.Duration{"sent again by the store": 0, "sent again by the caller": time.Nanosecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, dsn := newProxy(t)
			a := through(t, dsn, pgx.QueryExecModeCacheStatement)
			a.opts = postgres.Options{PollOnly: true, RetryTimeout: patience}
			a.trouble = &proptest.Trouble{Make: p.breaks, Count: p.troubles, Settle: p.settle}
			open := opener(t, a)
			proptest.Conformance(t, open, proptest.Options{Only: []string{"T5"}, Log: func(string) {}})
			proptest.Check(t, open, proptest.Options{Rounds: 2})
			if p.troubles() == 0 {
				t.Error("no connection broke")
			}
		})
	}
}

// TestLinearizableWithBrokenConnections (H20): connections break at drawn statements, before or after
// they took effect. Each call has one effect or none, and an answer that fits.
func TestLinearizableWithBrokenConnections(t *testing.T) {
	t.Parallel()
	p, dsn := newProxy(t)
	a := through(t, dsn, pgx.QueryExecModeCacheStatement)
	a.trouble = &proptest.Trouble{Make: p.breaks, Count: p.troubles}
	proptest.Linearizable(t, opener(t, a), proptest.Options{Histories: 12})
	if p.count == 0 {
		t.Error("no connection broke")
	}
}

// TestLinearizableWithAServerThatIsKilled (H20, H24): the server of the history is killed under its calls,
// and recovers. What was acknowledged is there, and nothing twice.
func TestLinearizableWithAServerThatIsKilled(t *testing.T) {
	cluster := pgtest.Start(t)
	pool := newPool(t, cluster.DSN(), pgx.QueryExecModeCacheStatement, 20)
	var kills atomic.Int64
	var one sync.Mutex
	var failed atomic.Pointer[error]
	a := access{
		dsn: cluster.DSN(), pool: func() *pgxpool.Pool { return pool }, raw: pool, opts: postgres.Options{PollOnly: true, RetryTimeout: 20 * time.Second},
		trouble: &proptest.Trouble{
			Make: func(draw func(int) int) {
				if n := kills.Load(); n > 0 && draw(4) > 0 || n >= 6 || !one.TryLock() { // one at a time, and calls in between
					return
				}
				defer one.Unlock()
				kills.Add(1)
				err := cluster.Kill()
				if err == nil {
					err = cluster.Up()
				}
				if err != nil {
					failed.Store(&err)
				}
				kills.Add(1)
			},
			Count: func() int { return int(kills.Load()) },
		},
	}
	n := 0
	open := func(t proptest.T) proptest.Opened {
		t.Helper()
		n++
		f := newFixture(t, a, fmt.Sprintf("history_%d", n))
		return proptest.Opened{Store: f.store, Hooks: proptest.Hooks{Trouble: a.trouble}}
	}
	proptest.Linearizable(t, open, proptest.Options{Histories: 2, Timeout: 2 * time.Minute})
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
	if kills.Load() == 0 {
		t.Error("the server was not killed")
	}
	t.Logf("%d kills", kills.Load()/2)
}
