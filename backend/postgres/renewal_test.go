package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// A plan that was made while the table was small reads all of it. A connection does not keep it while the
// table grows, although nothing analyzes that.
func TestAConnectionMakesItsPlansAnewWhileTheTableGrows(t *testing.T) {
	ctx := t.Context()
	a := direct(t)
	pool := newPool(t, a.dsn, pgx.QueryExecModeCacheStatement, 1)
	a.pool = func() *pgxpool.Pool { return pool }
	s := newStore(t, a, postgres.Options{PollOnly: true})
	runs := nameOf(s, "runs")
	exec := func(sql string) {
		t.Helper()
		if _, err := a.raw.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range []string{"runs", "events"} {
		exec("alter table " + nameOf(s, table) + " set (autovacuum_enabled = false)")
	}
	exec("analyze " + runs)
	docs, tokens := map[string]*run.Document{}, map[string]claim.Token{}
	for i := range 2 {
		in := draft(fmt.Sprint("run-", i), claimed)
		inserted, err := s.InsertRun(ctx, backend.Tenantless(), in)
		if err != nil {
			t.Fatal(err)
		}
		docs[in.Document.ID], tokens[in.Document.ID] = in.Document, inserted.Lease.Token
	}
	commit := func() {
		t.Helper()
		var cs []backend.Commit
		for id, d := range docs {
			c := stepping(d, tokens[id])
			cs, docs[id] = append(cs, c), c.Document
		}
		for _, r := range s.Commits(ctx, backend.System(), cs) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	// readsAll reports whether the plan that the connection keeps for groups reads the whole table. Its own
	// query, which is prepared too, must not find itself.
	readsAll := func() bool {
		t.Helper()
		var name string
		var parameters int
		if err := pool.QueryRow(ctx, "select name, cardinality(parameter_types) from pg_prepared_statements where statement like '%free' || ' as materialized%'").Scan(&name, &parameters); err != nil {
			t.Fatal(err)
		}
		explain := "set plan_cache_mode = force_generic_plan; explain execute " + name + "(" + strings.Repeat("null, ", parameters-1) + "null)"
		var plan strings.Builder
		c, err := pool.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Release()
		answers, err := c.Conn().PgConn().Exec(ctx, explain+"; reset plan_cache_mode").ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, answer := range answers {
			for _, row := range answer.Rows {
				plan.Write(row[0])
				plan.WriteByte('\n')
			}
		}
		return strings.Contains(plan.String(), "Seq Scan on runs")
	}
	for range 10 {
		commit()
	}
	if !readsAll() {
		t.Fatal("the plan for a table of two runs does not read all of it, so this test shows nothing")
	}
	exec("insert into " + runs + ` (id, owner, graph_id, graph_hash, status, started_at, updated_at, finished_at, checkpoint_seq, checkpoint_type, checkpoint_id, document)
		select 'other-' || n, '', 'graph', 'hash', 'done', now(), now(), now(), 2, 'run_completed', 'c', '{}' from generate_series(1, 20000) n`)
	grown := time.Now()
	for readsAll() {
		if time.Since(grown) > 15*time.Second {
			t.Fatal("the plan of the small table is kept")
		}
		commit()
	}
}

// firstRenewal is for how long a connection keeps its first plans.
const firstRenewal = 50 * time.Millisecond

// A server or a proxy that refuses the renewal keeps its plans, and the statement is executed; where the connection
// breaks under the renewal, the statement was not sent.
func TestWhatARenewalMeetsIsNotTheStatements(t *testing.T) {
	p, dsn := newProxy(t)
	p.renewals = true
	a := through(t, dsn, pgx.QueryExecModeCacheStatement)
	pool := newPool(t, dsn, pgx.QueryExecModeCacheStatement, 1)
	a.pool = func() *pgxpool.Pool { return pool }
	s := newStore(t, a, postgres.Options{PollOnly: true, RetryTimeout: time.Nanosecond})
	for i, tt := range []struct {
		due    time.Duration // after which a renewal is
		fault  fault
		nature backend.Nature
		stored bool
	}{
		{500 * time.Millisecond, fault{}, backend.Transient, false}, // opening the store took part of that
		{firstRenewal, fault{answered: true, settled: true}, backend.Transient, false},
		{firstRenewal, fault{code: "42601"}, backend.Permanent, true}, // the nature of no error
		{2 * firstRenewal, fault{code: "0A000"}, backend.Permanent, true},
	} {
		time.Sleep(tt.due)
		p.arm(tt.fault)
		id := fmt.Sprint("run-", i)
		_, err := s.InsertRun(t.Context(), backend.Tenantless(), draft(id))
		if !p.disarm() {
			t.Fatalf("%d: nothing was asked", i)
		}
		if (err == nil) != tt.stored || backend.Classify(err) != tt.nature {
			t.Errorf("%+v: answered as %v: %v", tt.fault, backend.Classify(err), err)
		}
		var stored bool
		if err := a.raw.QueryRow(t.Context(), "select exists (select from "+nameOf(s, "runs")+" where id = $1)", id).Scan(&stored); err != nil || stored != tt.stored {
			t.Errorf("%+v: stored %v, %v", tt.fault, stored, err)
		}
		if _, err := s.InspectRun(t.Context(), backend.System(), "nobody"); !errors.Is(err, backend.ErrNotFound) { // opens a connection
			t.Error(err)
		}
	}
}
