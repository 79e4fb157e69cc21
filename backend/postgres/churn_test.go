package postgres_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// finishedRuns is how many finished runs benchmarks fill a store with: BELAY_BENCH_RUNS, or 100,000, with
// which each benchmark is done in a minute.
func finishedRuns(b *testing.B) int {
	b.Helper()
	given := os.Getenv("BELAY_BENCH_RUNS")
	if given == "" {
		return 100_000
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1000 {
		b.Fatalf("BELAY_BENCH_RUNS is %q: it must be a number of runs, 1000 or more", given)
	}
	return n
}

// BenchmarkClaimsAfterChurn: claims of 100 from a small table, and from one with many finished and a fifth
// as many due runs, of which others were claimed under an old snapshot, so that the server can remove
// neither their rows nor their entries of indexes. Reported are the median and the 99th percentile.
func BenchmarkClaimsAfterChurn(b *testing.B) {
	finished := finishedRuns(b)
	for _, c := range []struct {
		name                 string
		finished, due, churn int
	}{{"small", 0, 10_000, 0}, {"large", finished, finished / 5, 0}, {"churned", finished, finished / 5, finished / 50}} {
		b.Run(c.name, func(b *testing.B) {
			a := direct(b)
			s := newStore(b, a, postgres.Options{PollOnly: true})
			ctx, ref := context.Background(), func() string { r, _ := aGraph(); return r.Hash }()
			fill := fmt.Sprintf(`insert into %[1]s (id, owner, graph_id, graph_hash, status, started_at, updated_at, finished_at, wake_at, checkpoint_seq, checkpoint_type, checkpoint_id, document)
select 'run-' || lpad(n::text, 8, '0'), '', 'proof', '%[2]s', case when n < %[3]d then 'done' else 'running' end, at, at, case when n < %[3]d then at end,
  case when n >= %[3]d then at end, 1, 'run_initialized', 'c', convert_to(repeat('x', 1000), 'UTF8')
from (select n, timestamptz '2030-01-01' + n * interval '1 millisecond' as at from generate_series(0, %[4]d) n) r; vacuum analyze %[1]s`,
				nameOf(s, "runs"), ref, c.finished, c.finished+c.due-1)
			for _, text := range []string{fill[:len(fill)-len("; vacuum analyze "+nameOf(s, "runs"))], "vacuum analyze " + nameOf(s, "runs")} {
				if _, err := a.raw.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol); err != nil {
					b.Fatal(err)
				}
			}
			old, err := a.raw.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = old.Rollback(ctx) }()
			if _, err := old.Exec(ctx, "select 1 from "+nameOf(s, "runs")+" limit 1"); err != nil {
				b.Fatal(err)
			}
			p := claim.Policy{Now: time.Date(2032, 1, 1, 0, 0, 0, 0, time.UTC), TTL: time.Hour, Limit: 100, MaxAttempts: 3}
			for n := 0; n < c.churn; n += p.Limit {
				if _, err := s.ClaimDue(ctx, p); err != nil {
					b.Fatal(err)
				}
			}
			var took []time.Duration
			for b.Loop() {
				begun := time.Now()
				if _, err := s.ClaimDue(ctx, p); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begun))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// BenchmarkManyFinished: what is asked of a store with many finished runs, each with four events, of which a
// thousandth have failed, and a thousand that are not finished.
func BenchmarkManyFinished(b *testing.B) {
	finished := finishedRuns(b)
	a := direct(b)
	s := newStore(b, a, postgres.Options{PollOnly: true})
	ctx := context.Background()
	ref, _ := aGraph()
	for _, text := range []string{
		fmt.Sprintf(`insert into %[1]s (id, owner, graph_id, graph_hash, status, started_at, updated_at, finished_at, wake_at, checkpoint_seq, checkpoint_type, checkpoint_id, document)
select 'run-' || lpad(n::text, 8, '0'), 'tenant-' || n %% 50, 'proof', '%[2]s', case when n > %[3]d then 'running' when n %% 1000 = 0 then 'failed' else 'done' end, at, at, case when n <= %[3]d then at end,
  case when n > %[3]d then at end, 2, 'run_completed', 'c', convert_to(repeat('x', 300), 'UTF8')
from (select n, timestamptz '2030-01-01' + n * interval '1 second' as at from generate_series(1, %[3]d + 1000) n) r`, nameOf(s, "runs"), ref.Hash, finished),
		fmt.Sprintf("insert into %s (started_at, id, owner, graph_id, graph_hash) select started_at, id, owner, graph_id, graph_hash from %s", nameOf(s, "starts"), nameOf(s, "runs")),
		fmt.Sprintf("insert into %s (run_id, seq, checkpoint_id, body) select id, e, 'c', convert_to(repeat('x', 120), 'UTF8') from %s, generate_series(1, 4) e", nameOf(s, "events"), nameOf(s, "runs")),
		"analyze " + nameOf(s, "runs"), "analyze " + nameOf(s, "starts"), "analyze " + nameOf(s, "events"),
	} {
		if _, err := a.raw.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol); err != nil {
			b.Fatal(err)
		}
	}
	var sizes string
	err := a.raw.QueryRow(ctx, `select string_agg(relname || ' ' || pg_size_pretty(pg_relation_size(c.oid)), ', ' order by pg_relation_size(c.oid) desc)
from pg_class c join pg_namespace n on n.oid = relnamespace where nspname = $1 and relkind in ('r', 'i') and pg_relation_size(c.oid) > 1000000`, s.Schema()).Scan(&sizes)
	if err != nil {
		b.Fatal(err)
	}
	b.Log(sizes)
	for _, list := range []struct {
		name string
		q    backend.Query
	}{
		{"the newest", backend.Query{Limit: 50}},
		{"done", backend.Query{Limit: 50, Statuses: []run.Status{run.Done}}},
		{"running", backend.Query{Limit: 50, Statuses: []run.Status{run.Running}}},
		{"failed", backend.Query{Limit: 50, Statuses: []run.Status{run.Failed}}},
		{"cancelled, of which there are none", backend.Query{Limit: 50, Statuses: []run.Status{run.Cancelled}}},
	} {
		b.Run("list of "+list.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.ListRuns(ctx, backend.System(), list.q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("prune", func(b *testing.B) {
		pruned := 0
		for b.Loop() {
			got, err := s.Prune(ctx, backend.PrunePolicy{Before: time.Date(2032, 1, 1, 0, 0, 0, 0, time.UTC), Limit: 1000})
			if err != nil {
				b.Fatal(err)
			}
			pruned += got.Runs
		}
		b.ReportMetric(float64(pruned)/b.Elapsed().Seconds(), "runs/s")
	})
}
