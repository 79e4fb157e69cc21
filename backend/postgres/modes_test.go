package postgres_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/internal/pgtest"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// Every mode is tried with every case when many random cases are asked for, too; else some
// with those that send each kind of argument.
func mostly(mode pgx.QueryExecMode, whole pgx.QueryExecMode) proptest.Options {
	if mode == whole {
		return proptest.Options{}
	}
	return some()
}

// some are a case of each statement, and all when many random cases are asked for.
func some() proptest.Options {
	if os.Getenv("RAPID_CHECKS") != "" {
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
	t.Parallel()
	dsn := pgtest.Bouncer(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
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

// TestH23HistoriesOfModes: random histories, and goroutines at once, by the simple protocol and through
// a proxy that pools transactions.
func TestH23HistoriesOfModes(t *testing.T) {
	t.Parallel()
	pooled := through(t, pgtest.Bouncer(t), pgx.QueryExecModeExec)
	pooled.opts.PollOnly = true
	for name, a := range map[string]access{
		"simple protocol": through(t, pgtest.DSN(t), pgx.QueryExecModeSimpleProtocol), "PgBouncer": pooled,
	} {
		t.Run(name, func(t *testing.T) {
			proptest.Check(t, opener(t, a), proptest.Options{Rounds: 2})
			proptest.Linearizable(t, opener(t, a), proptest.Options{Histories: 100})
		})
	}
}

// TestTheHostsTransactionIsTheSameStore (F2): what a store does that is bound to a host's transaction,
// each time one of its own at another isolation level, is what it does by itself.
func TestTheHostsTransactionIsTheSameStore(t *testing.T) {
	t.Parallel()
	a := direct(t)
	open := opener(t, a)
	bound := func(t proptest.T) proptest.Opened {
		t.Helper()
		o := open(t)
		o.Store = &hosted{Store: o.Store.(*postgres.Store), access: a}
		o.Hooks.Reopen = nil
		return o
	}
	proptest.Conformance(t, bound, proptest.Options{Only: []string{"R1", "R2", "R4", "A1", "A2", "A6.same-answer", "A8", "G1", "G2", "T5", "F2", "H22"}})
	proptest.Check(t, bound, proptest.Options{Rounds: 2})
	proptest.Linearizable(t, bound, proptest.Options{Histories: 100})
}

// hosted publishes, starts and reads in transactions of a host.
type hosted struct {
	*postgres.Store
	access
	turn atomic.Int64
}

// within is a host's transaction. A host that asked for a strict level repeats what fails for it.
func (h *hosted) within(ctx context.Context, do func(tx backend.Starter) error) (err error) {
	levels := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}
	level := levels[h.turn.Add(1)%int64(len(levels))]
	for range 100 {
		err = pgx.BeginTxFunc(ctx, h.pool(), pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error { return do(h.WithTx(tx)) })
		if backend.Classify(err) != backend.Transient {
			var failed *pgconn.PgError // of the host's own commit
			if !errors.As(err, &failed) || failed.Code != "40001" {
				return err
			}
		}
	}
	return err
}

func (h *hosted) SaveGraph(ctx context.Context, owner backend.Owner, ref graph.Ref, raw value.Value) error {
	return h.within(ctx, func(tx backend.Starter) error { return tx.SaveGraph(ctx, owner, ref, raw) })
}

func (h *hosted) InsertRun(ctx context.Context, owner backend.Owner, in backend.Initialization) (got backend.Inserted, err error) {
	if in.Claim != nil { // bound, a store claims nothing
		return h.Store.InsertRun(ctx, owner, in)
	}
	err = h.within(ctx, func(tx backend.Starter) (err error) {
		got, err = tx.InsertRun(ctx, owner, in)
		return err
	})
	return got, err
}

func (h *hosted) FetchRun(ctx context.Context, scope backend.Scope, id string) (d *run.Document, err error) {
	err = h.within(ctx, func(tx backend.Starter) (err error) {
		d, err = tx.FetchRun(ctx, scope, id)
		return err
	})
	return d, err
}
