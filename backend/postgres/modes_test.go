package postgres_test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/internal/pgtest"
	"github.com/belay-run/belay/proptest"
)

// Every mode is tried with every case when many random cases are asked for, too; else some
// with those that send each kind of argument.
func mostly(mode pgx.QueryExecMode, whole pgx.QueryExecMode) proptest.Options {
	if mode == whole || os.Getenv("RAPID_CHECKS") != "" {
		return proptest.Options{}
	}
	return proptest.Options{Only: []string{"R1", "R2", "R5", "K3", "K5", "K6", "K7", "K8", "K9", "T2", "T3", "T6", "E2", "G3", "X2", "X7", "F2"}}
}

// TestH23ConformanceOfModes (H23): the whole contract in every way that pgx sends statements.
func TestH23ConformanceOfModes(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			proptest.Conformance(t, opener(t, through(t, pgtest.DSN(t), mode)), mostly(mode, pgx.QueryExecModeSimpleProtocol))
		})
	}
}

// TestH23ConformanceThroughPgBouncer (H23): the whole contract through a proxy that pools
// transactions, in the modes of pgx that prepare nothing on a connection.
func TestH23ConformanceThroughPgBouncer(t *testing.T) {
	dsn := pgtest.Bouncer(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			a := through(t, dsn, mode)
			a.opts.PollOnly = true
			proptest.Conformance(t, opener(t, a), mostly(mode, pgx.QueryExecModeExec))
		})
	}
}

// TestH23AProxyThatPoolsTransactionsIsFoundOut (H23): a mode that the proxy cannot carry is refused
// with advice, and a listening connection through it is not relied on.
func TestH23AProxyThatPoolsTransactionsIsFoundOut(t *testing.T) {
	dsn := pgtest.Bouncer(t)
	s := newStore(t, through(t, dsn, pgx.QueryExecModeExec), postgres.Options{PollInterval: 10 * time.Millisecond})
	woken, err := s.Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		<-woken
	}
	prepared := newPool(t, dsn, pgx.QueryExecModeCacheStatement, 20)
	refused := func() error {
		p, err := postgres.New(prepared, postgres.Options{Schema: s.Schema(), VerifyOnly: true, PollOnly: true})
		if err != nil {
			return err
		}
		defer p.Close()
		errs := make([]error, 16)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				for range 20 {
					if _, err := p.Now(t.Context()); err != nil {
						errs[i] = err
						return
					}
				}
			})
		}
		all.Wait()
		return errors.Join(errs...)
	}()
	if refused == nil || !strings.Contains(refused.Error(), "default_query_exec_mode=exec") {
		t.Errorf("prepared statements through the proxy were answered %v", refused)
	}
}
