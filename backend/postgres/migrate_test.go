package postgres

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/internal/pgtest"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

var update = flag.Bool("update", false, "rewrite golden files")

func testPool(t *testing.T) *pgxpool.Pool { t.Helper(); return testPoolOn(t, pgtest.DSN(t)) }

func testPoolOn(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func testStore(t *testing.T, pool *pgxpool.Pool, opts Options) *Store {
	t.Helper()
	if opts.Schema == "" {
		opts.Schema = pgtest.Schema(t)
	}
	s, err := New(pool, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestSchemaIsTheGoldenOne: what the migrations lead to, on every version of the server.
func TestSchemaIsTheGoldenOne(t *testing.T) {
	s := testStore(t, testPool(t), Options{})
	got, err := s.describe(t.Context(), s.pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("schema.golden", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile("schema.golden")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the schema differs from schema.golden (rewrite it with -update):\n%s", got)
	}
}

// TestEveryStatementPrepares: each file in sql is used by name, and understood by the server.
func TestEveryStatementPrepares(t *testing.T) {
	s := testStore(t, testPool(t), Options{})
	used, err := os.ReadFile("statements.go")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for st, text := range s.texts {
		if !strings.Contains(string(used), fmt.Sprintf("statement = %q", st)) {
			t.Errorf("sql/%s.sql is not used", st)
		}
		if strings.Contains(text, placeholder) {
			t.Errorf("sql/%s.sql keeps its placeholder", st)
		}
		if st == stPruneGraphsLock { // a utility statement, which is not prepared
			continue
		}
		if _, err := conn.Conn().Prepare(t.Context(), string(st), text); err != nil {
			t.Errorf("sql/%s.sql: %v", st, err)
		}
	}
	if n := strings.Count(string(used), "statement = \""); n != len(s.texts) {
		t.Errorf("%d statements have a name and %d a file", n, len(s.texts))
	}
}

// TestMigrationsAreReadable: the exported files are those that are applied.
func TestMigrationsAreReadable(t *testing.T) {
	all, err := loadMigrations()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := fs.ReadDir(Migrations(), ".")
	if err != nil || len(entries) != len(all) {
		t.Fatalf("%d files are exported and %d are applied, %v", len(entries), len(all), err)
	}
	for i, m := range all {
		if m.number != int64(i+1) || entries[i].Name() != m.name {
			t.Errorf("migration %d is %s, its file %s", m.number, m.name, entries[i].Name())
		}
		if m.from < 1 || m.from > m.number {
			t.Errorf("migration %s is compatible from %d", m.name, m.from)
		}
	}
}

// TestOddSchemaNames: a schema's name is quoted wherever it is used.
func TestOddSchemaNames(t *testing.T) {
	pool := testPool(t)
	for _, name := range []string{`a "quoted" name`, "with; drop table", "Ünïcode", "select", strings.Repeat("x", maxSchema)} {
		schema := name
		t.Cleanup(func() {
			_, err := pool.Exec(context.Background(), "drop schema if exists "+pgx.Identifier{schema}.Sanitize()+" cascade")
			if err != nil {
				t.Error(err)
			}
		})
		s := testStore(t, pool, Options{Schema: schema})
		if _, err := s.FetchRun(t.Context(), backend.System(), "absent"); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("in the schema %q: %v", schema, err)
		}
		if _, err := New(pool, Options{Schema: schema, VerifyOnly: true}); err != nil {
			t.Errorf("the schema %q is not found again: %v", schema, err)
		}
	}
	for _, name := range []string{strings.Repeat("x", maxSchema+1), "nul\x00", "\xff"} {
		if _, err := New(pool, Options{Schema: name}); !errors.Is(err, backend.ErrInvalidArgument) {
			t.Errorf("the schema %q: %v", name, err)
		}
	}
}

// TestH21MigratorsAtOnce (H21): any number of migrators, one of them killed in the middle,
// lead to one schema, and each program that comes later finds it.
func TestH21MigratorsAtOnce(t *testing.T) {
	pool, schema := testPool(t), pgtest.Schema(t)
	all, err := loadMigrations()
	if err != nil {
		t.Fatal(err)
	}
	// The killed one holds the lock, has made tables, and loses its connection.
	victim := &Store{pool: pool, opts: Options{Schema: schema}.withDefaults()}
	if victim.texts, err = loadStatements(schema); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := victim.migrateIn(t.Context(), tx, all); err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 3)
	var others sync.WaitGroup
	for i := range errs {
		others.Go(func() {
			s, err := New(pool, Options{Schema: schema})
			if errs[i] = err; err == nil {
				errs[i] = s.Close()
			}
		})
	}
	var waiting int
	for waiting < len(errs) {
		const ask = "select count(*) from pg_locks where locktype = 'advisory' and not granted and objid = ($1::bigint & 4294967295)::oid"
		if err := pool.QueryRow(t.Context(), ask, victim.lockKey("migrate")).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), "select pg_terminate_backend($1)", int32(tx.Conn().PgConn().PID())); err != nil {
		t.Fatal(err)
	}
	_ = tx.Rollback(context.Background())
	others.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("migrator %d: %v", i, err)
		}
	}
	if _, err := New(pool, Options{Schema: schema, VerifyOnly: true}); err != nil {
		t.Error(err)
	}
}

// TestSetupRefusals: each refusal names its problem and what to do.
func TestSetupRefusals(t *testing.T) {
	pool := testPool(t)
	problem := func(opts Options, want Problem) {
		t.Helper()
		_, err := New(pool, opts)
		refusal, ok := errors.AsType[*SetupError](err)
		if !ok || refusal.Problem != want || refusal.Remedy == "" {
			t.Errorf("it answered %v; the problem must be %s, with a remedy", err, want)
		}
	}
	exec := func(text string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), text, args...); err != nil {
			t.Fatal(err)
		}
	}
	schema := pgtest.Schema(t)
	problem(Options{Schema: schema, VerifyOnly: true}, ProblemOutdated)
	s := testStore(t, pool, Options{Schema: schema})
	migrations := pgx.Identifier{schema, "migrations"}.Sanitize()

	exec("insert into " + migrations + " values (1000, '1000_later.sql', 'x', 1, now())")
	testStore(t, pool, Options{Schema: schema}) // the next release's schema, which this one works with
	exec("update " + migrations + " set compatible_from = 1000 where number = 1000")
	problem(Options{Schema: schema}, ProblemNewer)
	exec("delete from " + migrations + " where number = 1000")
	exec("update " + migrations + " set sha256 = 'x' where number = 1")
	problem(Options{Schema: schema}, ProblemLedger)

	// Somebody migrates and does not end.
	busy := pgtest.Schema(t)
	s.opts.Schema = busy
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "select pg_advisory_xact_lock($1)", s.lockKey("migrate")); err != nil {
		t.Fatal(err)
	}
	problem(Options{Schema: busy, SetupTimeout: 300 * time.Millisecond}, ProblemBusy)
}

// TestRoleWithoutRights: a role that may not create is told what is missing, and works once
// somebody else has migrated and granted.
func TestRoleWithoutRights(t *testing.T) {
	dsn := pgtest.Superuser(t)
	pool, schema := testPoolOn(t, dsn), pgtest.SchemaOn(t, dsn)
	role := schema + "_role"
	exec := func(text string) {
		t.Helper()
		if _, err := pool.Exec(context.Background(), text, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	exec("create role " + role)
	t.Cleanup(func() { exec("drop owned by " + role + "; drop role " + role) })
	config := pool.Config()
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "set role "+role)
		return err
	}
	limited, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer limited.Close()
	_, err = New(limited, Options{Schema: schema})
	refusal, ok := errors.AsType[*SetupError](err)
	if !ok || refusal.Problem != ProblemPrivilege || !strings.Contains(refusal.Remedy, "grant") {
		t.Errorf("a role without rights was answered %v", err)
	}
	testStore(t, pool, Options{Schema: schema})
	exec("grant usage on schema " + schema + " to " + role + "; grant select, insert, update, delete on all tables in schema " + schema + " to " + role)
	s := testStore(t, limited, Options{Schema: schema})
	if _, err := s.FetchRun(t.Context(), backend.System(), "absent"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("the granted role was answered %v", err)
	}
}

// TestH21MigrationUnderLoad: while programs of the schema before start, claim and commit, three migrators
// apply a migration that needs every table for itself; one of them is killed. Waiting is bounded, nobody
// fails, and the schema is the new one, once.
func TestH21MigrationUnderLoad(t *testing.T) {
	pool := testPool(t)
	s := testStore(t, pool, Options{PollOnly: true})
	all, err := loadMigrations()
	if err != nil {
		t.Fatal(err)
	}
	next, err := newMigration(fmt.Sprintf("%04d_next.sql", len(all)+1), `alter table :"schema".runs add column next_one text;
alter table :"schema".graphs add column next_one text;
alter table :"schema".events add column next_one text;
alter table :"schema".start_keys add column next_one text;
alter table :"schema".starts add column next_one text`)
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, next)
	// An index locks runs against writers, and a commit that has written events waits for it: whoever
	// then wanted events too, without giving runs back, would never get them.
	for i, text := range []string{`create index next_index on :"schema".runs (next_one)`, `alter table :"schema".events add column next_two text`} {
		m, err := newMigration(fmt.Sprintf("%04d_after.sql", len(all)+1), text)
		if err != nil {
			t.Fatal(i, err)
		}
		all = append(all, m)
	}
	raw := []byte(`{"id":"load"}`)
	ref := graph.Ref{ID: "load", Hash: value.Hash(raw)}
	if err := s.SaveGraph(t.Context(), backend.Tenantless(), ref, raw); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var done atomic.Int64
	errs, slowest := make([]error, 6), make([]time.Duration, 6)
	var workers sync.WaitGroup
	for w := range errs {
		workers.Go(func() {
			for n := 0; errs[w] == nil; n++ {
				select {
				case <-stop:
					return
				default:
				}
				begun := time.Now()
				errs[w] = startClaimAndMutate(t.Context(), s, ref, fmt.Sprintf("run-%d-%d", w, n))
				slowest[w] = max(slowest[w], time.Since(begun))
				done.Add(1)
			}
		})
	}
	progress := func(n int64) {
		for goal := done.Load() + n; done.Load() < goal; {
			time.Sleep(time.Millisecond)
		}
	}
	progress(50)
	ctx, kill := context.WithCancel(t.Context())
	killed := make(chan error, 1)
	go func() {
		_, err := s.migrate(ctx, all)
		killed <- err
	}()
	time.AfterFunc(5*time.Millisecond, kill)
	migrated := make([]error, 2)
	var migrators sync.WaitGroup
	for i := range migrated {
		migrators.Go(func() { _, migrated[i] = s.migrate(t.Context(), all) })
	}
	migrators.Wait()
	<-killed
	progress(50)
	close(stop)
	workers.Wait()
	for i, err := range migrated {
		if err != nil {
			t.Errorf("migrator %d: %v", i, err)
		}
	}
	for w, err := range errs {
		if err != nil {
			t.Errorf("worker %d: %v", w, err)
		}
		if slowest[w] > s.opts.RetryTimeout {
			t.Errorf("worker %d waited %v", w, slowest[w])
		}
	}
	left, err := s.missing(t.Context(), s.pool, all)
	if err != nil || len(left) > 0 {
		t.Errorf("%d migrations are missing, %v", len(left), err)
	}
	t.Logf("%d starts, claims and mutations; the slowest %v", done.Load(), slices.Max(slowest))
}

// startClaimAndMutate starts a run, claims it and ends it without its claim: statements that lock
// tables in different orders.
func startClaimAndMutate(ctx context.Context, s *Store, ref graph.Ref, id string) error {
	at := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	closes := func(seq int64, kind checkpoint.Type) []run.Event {
		return []run.Event{{Run: id, Seq: seq, Type: run.EventCheckpointCommitted, At: at, Checkpoint: kind, Commit: seq}}
	}
	d := &run.Document{ID: id, Graph: ref, Status: run.Running, Seq: 1, EventSeq: 1, StartedAt: at, UpdatedAt: at}
	_, err := s.InsertRun(ctx, backend.Tenantless(), backend.Initialization{
		Proposal: run.Proposal{
			Document: d, Type: checkpoint.RunInitialized, Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseNow}, Now: at, Events: closes(1, checkpoint.RunInitialized),
		},
		CheckpointID: checkpoint.ID("1 of " + id), Key: id,
	})
	if err != nil {
		return err
	}
	if _, err := s.ClaimDue(ctx, claim.Policy{Now: at, TTL: time.Minute, Limit: 2, MaxAttempts: 100, Fairness: claim.Interleave}); err != nil {
		return err
	}
	_, err = s.MutateRun(ctx, backend.System(), id, checkpoint.ID("2 of "+id), func(d *run.Document) (backend.Mutation, error) {
		next := *d
		next.Seq, next.EventSeq, next.Status, next.FinishedAt = 2, 2, run.Cancelled, at
		return backend.Mutation{Proposal: &run.Proposal{
			Expected: 1, Document: &next, Type: checkpoint.RunCancelled, Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseTerminal}, Now: at,
			Events: closes(2, checkpoint.RunCancelled),
		}}, nil
	})
	return err
}
