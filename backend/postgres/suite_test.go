package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/internal/pgtest"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/run"
)

// TestConformance: the whole contract on one server.
func TestConformance(t *testing.T) {
	t.Parallel()
	proptest.Conformance(t, opener(t, direct(t)), proptest.Options{})
}

// TestCheck: random histories against the kit's model.
func TestCheck(t *testing.T) {
	t.Parallel()
	proptest.Check(t, opener(t, direct(t)), proptest.Options{})
}

// TestLinearizable: goroutines on one store, each call on a connection of its own.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	proptest.Linearizable(t, opener(t, direct(t)), proptest.Options{})
}

// access is how a test reaches the database.
type access struct {
	dsn  string               // of the store
	mode pgx.QueryExecMode    // how the store's statements are sent
	opts postgres.Options     // beside the schema and the clock
	pool func() *pgxpool.Pool // shared by the stores of the test
	raw  *pgxpool.Pool        // past the store
	// trouble, when set, is made while stores are called.
	trouble *proptest.Trouble
	// prepare, when set, changes each store before it is used.
	prepare func(t proptest.T, s *postgres.Store)
}

// direct is access without anything in between.
func direct(t proptest.T) access { return through(t, pgtest.DSN(t), pgx.QueryExecModeCacheStatement) }

// through is access by a connection string, in an exec mode.
func through(t proptest.T, dsn string, mode pgx.QueryExecMode) access {
	t.Helper()
	raw := newPool(t, pgtest.DSN(t), pgx.QueryExecModeExec, 10)
	pool := newPool(t, dsn, mode, 20)
	return access{dsn: dsn, mode: mode, raw: raw, pool: func() *pgxpool.Pool { return pool }}
}

func newPool(t proptest.T, dsn string, mode pgx.QueryExecMode, most int32) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("%v", err)
	}
	config.MaxConns = most
	config.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// opener makes stores in schemas of their own, with every hook.
func opener(t proptest.T, a access) proptest.Opener {
	t.Helper()
	used := &schemas{top: t}
	return func(t proptest.T) proptest.Opened {
		t.Helper()
		return newFixture(t, a, used.take(t, a)).opened()
	}
}

func (f *fixture) opened() proptest.Opened {
	return proptest.Opened{Store: f.store, Hooks: proptest.Hooks{
		WriteDocument: f.writeDocument, WriteEvent: f.writeEvent, WriteGraph: f.writeGraph, LockRun: f.lockRun,
		SetClock: f.setClock, Reopen: f.reopen, Host: f.host, Audit: f.audit, Trouble: f.trouble,
	}}
}

// schemas are used again and again, emptied in between, since making one takes longer than
// most cases do.
type schemas struct {
	top  proptest.T // outlives the cases
	mu   sync.Mutex
	free []string
}

func (s *schemas) take(t proptest.T, a access) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var name string
	if n := len(s.free); n > 0 {
		name, s.free = s.free[n-1], s.free[:n-1]
	} else {
		name = pgtest.Schema(s.top)
	}
	t.Cleanup(func() {
		for _, table := range []string{"events", "start_keys", "starts", "runs", "graphs", "turns"} {
			if _, err := a.raw.Exec(context.Background(), "delete from "+pgx.Identifier{name, table}.Sanitize()); err != nil {
				t.Errorf("empty the schema: %v", err)
				return
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free = append(s.free, name)
	})
	return name
}

// fixture is a store's schema and what tests reach it by.
type fixture struct {
	access
	schema string
	store  *postgres.Store

	mu    sync.Mutex
	now   time.Time // zero: the system's clock
	locks locks
}

func newFixture(t proptest.T, a access, schema string) *fixture {
	t.Helper()
	f := &fixture{access: a, schema: schema}
	t.Cleanup(f.locks.end)
	f.store = f.open(t)
	return f
}

func (f *fixture) open(t proptest.T) *postgres.Store {
	t.Helper()
	opts := f.opts
	opts.Schema, opts.Now = f.schema, f.clock
	s, err := postgres.New(f.pool(), opts)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if f.prepare != nil {
		f.prepare(t, s)
	}
	return s
}

func (f *fixture) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now.IsZero() {
		return time.Now()
	}
	return f.now
}

func (f *fixture) setClock(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = now
}

func (f *fixture) reopen(t proptest.T) backend.Store {
	t.Helper()
	if err := f.store.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	f.store = f.open(t)
	return f.store
}

// table is the quoted name of a table.
func (f *fixture) table(name string) string { return pgx.Identifier{f.schema, name}.Sanitize() }

// change changes one row past every check of the store.
func (f *fixture) change(ctx context.Context, text string, args ...any) error {
	tag, err := f.raw.Exec(ctx, text, args...)
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("it did not change one row")
	}
	return err
}

func (f *fixture) writeDocument(ctx context.Context, run string, raw []byte) error {
	return f.change(ctx, "update "+f.table("runs")+" set document = $2 where id = $1", run, raw)
}

// writeEvent replaces one event, for which those that share its row get rows of their own: so rows of
// one event and of several stand beside each other, too.
func (f *fixture) writeEvent(ctx context.Context, id string, seq int64, raw []byte) error {
	var last int64
	var head []byte
	if err := f.raw.QueryRow(ctx, "select seq, body from "+f.table("events")+" where run_id = $1 and seq >= $2 order by seq limit 1", id, seq).
		Scan(&last, &head); err != nil {
		return err
	}
	first, err := backend.FirstEvent(id, last, head)
	if err != nil {
		return err
	}
	if first < last {
		page, err := f.store.ListEvents(ctx, backend.System(), id, backend.EventQuery{After: first - 1, Limit: int(last - first + 1)})
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			body, err := run.EncodeEvent(e)
			if err != nil {
				return err
			}
			text := "insert into " + f.table("events") + " (run_id, seq, body) values ($1, $2, $3)"
			if e.Seq == last {
				text = "update " + f.table("events") + " set body = $3, digest = null where run_id = $1 and seq = $2"
			}
			if err := f.change(ctx, text, id, e.Seq, body); err != nil {
				return err
			}
		}
	}
	return f.change(ctx, "update "+f.table("events")+" set body = $3, digest = null where run_id = $1 and seq = $2", id, seq, raw)
}

func (f *fixture) writeGraph(ctx context.Context, owner backend.Owner, ref graph.Ref, raw []byte) error {
	tenant, _ := owner.Tenant()
	return f.change(ctx, "update "+f.table("graphs")+" set body = $4 where owner = $1 and graph_id = $2 and graph_hash = $3", tenant, ref.ID, ref.Hash, raw)
}

// locks are rows that one transaction holds, each behind a savepoint: so many connections as there are
// rows to lock, no server has.
type locks struct {
	conn *pgx.Conn
	held []bool // by the savepoints, in their order
}

// lockRun locks a row as another transaction does. It is free again when it is unlocked and so is every
// row that was locked after it.
func (f *fixture) lockRun(ctx context.Context, run string) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.locks.conn == nil {
		conn, err := pgx.ConnectConfig(ctx, f.raw.Config().ConnConfig.Copy())
		if err != nil {
			return nil, err
		}
		f.locks.conn = conn
		if _, err := conn.Exec(ctx, "begin"); err != nil {
			return nil, err
		}
	}
	n := len(f.locks.held)
	text := fmt.Sprintf("savepoint lock_%d; select from %s where id = %s for update", n, f.table("runs"), quoted(run))
	if _, err := f.locks.conn.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, err
	}
	f.locks.held = append(f.locks.held, true)
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.locks.free(n)
	}), nil
}

func (l *locks) free(n int) {
	l.held[n] = false
	last := len(l.held)
	for last > 0 && !l.held[last-1] {
		last--
	}
	if last < len(l.held) {
		_, _ = l.conn.Exec(context.Background(), fmt.Sprintf("rollback to lock_%d", last))
		l.held = l.held[:last]
	}
}

// end frees what is left of a case that failed.
func (l *locks) end() {
	if l.conn != nil {
		_ = l.conn.Close(context.Background())
	}
}

// quoted is a text as a literal.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func (f *fixture) host(ctx context.Context, fn func(tx backend.Starter) error) error {
	return pgx.BeginFunc(ctx, f.pool(), func(tx pgx.Tx) error { return fn(f.store.WithTx(tx)) })
}

func (f *fixture) audit(ctx context.Context) ([]string, error) {
	var lines []string
	for finding, err := range f.store.Audit(ctx, backend.AuditPolicy{}) {
		if err != nil {
			return lines, err
		}
		lines = append(lines, finding.Check+" "+finding.Run+": "+finding.Detail)
	}
	return lines, nil
}
