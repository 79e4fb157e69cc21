package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/internal/pgtest"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

// statements counts what is sent to the server.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// newPostgres is a store in a schema of its own.
func newPostgres(t *testing.T) (store *postgres.Store, schema string, sent *statements) {
	t.Helper()
	schema, sent = pgtest.Schema(t), &statements{}
	config, err := pgxpool.ParseConfig(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.Tracer = sent
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store, err = postgres.New(pool, postgres.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store, schema, sent
}

func TestIdleEngineOnPostgresMakesAtMostOneStatementAPollInterval(t *testing.T) {
	const poll, polls = 100 * time.Millisecond, 15
	store, _, sent := newPostgres(t)
	e := newEngine(t, store, options{PollInterval: poll, Retention: &lifecycle.Retention{After: time.Hour}}, act("work", func(context.Context) error { return nil }))
	serve(t, e)
	r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
	if _, err := e.Await(t.Context(), r.ID); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * poll) // until what was done is announced, and nothing is held
	before, began := sent.n.Load(), time.Now()
	time.Sleep(polls * poll)
	if n, most := sent.n.Load()-before, int64(time.Since(began)/poll)+1; n > most || n == 0 {
		t.Errorf("%d statements in %d poll intervals", n, most)
	}
}

// Somebody holds locks of the first runs in the queue: those behind them are claimed.
func TestH11RunsBehindLockedOnesAreClaimed(t *testing.T) {
	store, schema, _ := newPostgres(t)
	e := newEngine(t, store, options{PollInterval: 50 * time.Millisecond, Concurrency: 5}, act("work", func(context.Context) error { return nil }))
	ref := publish(t, &e.Client, single)
	for i := range 30 {
		start(t, &e.Client, ref, nil, lifecycle.StartOptions{ID: fmt.Sprintf("r%02d", i)})
	}
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if tag, err := tx.Exec(t.Context(), strings.ReplaceAll("select 1 from $schema.runs where id < 'r20' for update", "$schema", schema)); err != nil || tag.RowsAffected() != 20 {
		t.Fatalf("%d rows locked, %v", tag.RowsAffected(), err)
	}
	serve(t, e)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	await := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if got, err := e.Await(ctx, fmt.Sprintf("r%02d", i)); err != nil || got.Status != run.Done {
				t.Fatalf("run %d: %v", i, err)
			}
		}
	}
	await(20, 30)
	page, err := e.List(ctx, backend.Query{Limit: 100, Statuses: []run.Status{run.Running}})
	if err != nil || len(page.Runs) != 20 {
		t.Errorf("%d runs are left, %v: want those that are locked", len(page.Runs), err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	await(0, 20)
}
