package postgres

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// population fills a schema: of every hundred runs ninety-five are finished, two ready, one
// scheduled, one claimed and one waiting.
const population = `
insert into :"schema".runs (id, owner, graph_id, graph_hash, status, started_at, updated_at, finished_at, wake_at, claim_token, claimed_at,
  checkpoint_seq, checkpoint_type, checkpoint_id, document)
select 'run-' || lpad(n::text, 8, '0'), case when n % 7 = 0 then '' else 'tenant-' || n % 50 end, 'graph', 'hash-' || n % 3,
  case when n % 100 < 4 then 'running' when n % 100 = 4 then 'waiting' else 'done' end,
  at, at, case when n % 100 > 4 then at end,
  case when n % 100 < 2 then at when n % 100 = 2 then at + interval '1 year' end,
  case when n % 100 = 3 then 'token' end, case when n % 100 = 3 then at end, 1, 'run_initialized', 'c-' || n, '{}'
from (select n, timestamptz '2030-01-01' + n * interval '1 second' as at from generate_series(1, 200000) n) r;
insert into :"schema".starts (started_at, id, owner, graph_id, graph_hash) select started_at, id, owner, graph_id, graph_hash from :"schema".runs;
insert into :"schema".events (run_id, seq, checkpoint_id, body)
select id, s, case when s = 2 then checkpoint_id end, '{}' from :"schema".runs, generate_series(1, 2) s;
insert into :"schema".start_keys (owner, graph_id, start_key, run_id, held_until) select owner, graph_id, id, id, started_at from :"schema".runs where finished_at is null;
insert into :"schema".graphs (owner, graph_id, graph_hash, published_at, body)
select owner, graph_id, graph_hash, min(started_at), '{}' from :"schema".runs group by 1, 2, 3;
insert into :"schema".graphs (owner, graph_id, graph_hash, published_at, body)
select 'tenant-' || n % 50, 'other-' || n % 100, 'hash-' || n, timestamptz '2030-01-01', '{}' from generate_series(1, 10000) n;
insert into :"schema".turns (owner, turn) select 'tenant-' || n, n from generate_series(1, 20000) n;
analyze :"schema".turns; analyze :"schema".runs; analyze :"schema".starts; analyze :"schema".events; analyze :"schema".start_keys; analyze :"schema".graphs`

// TestPlansUseTheirIndexes: with 200,000 runs, and plans that know nothing of their arguments
// (as a server makes them for statements that are executed often), nothing that claiming,
// committing, listing and pruning does looks at all runs, starts, events or keys.
func TestPlansUseTheirIndexes(t *testing.T) {
	s := testStore(t, testPool(t), Options{})
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), inSchema(population, s.opts.Schema)+"; set plan_cache_mode = force_generic_plan", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_, _ = conn.Exec(context.Background(), "reset plan_cache_mode; deallocate all", pgx.QueryExecModeSimpleProtocol)
	}()
	// Where a whole table may be read: all graphs, to find those that are of no use any more.
	whole := map[statement]string{stPruneGraphs: "graphs"}
	// Finished runs are in none of these.
	wanted := map[statement][]string{
		stClaim: {"runs_ready", "runs_claimed"}, stDueReady: {"runs_ready"}, stDueExpired: {"runs_claimed"},
		stDueOfOwners: {"runs_owner_ready"}, stDueOwners: {"runs_owner_ready"}, stDueHeld: {"runs_claimed"},
		stRunList: {"starts_key"}, stRunListOfOwner: {"starts_of_owner"}, stRunListByStatus: {"runs_listed"}, stRunListByStatusOfOwner: {"runs_listed"},
		stTurnTake: {"turns_last", "turns_key"}, stPruneTurns: {"starts_of_"}, stPruneRuns: {"runs_finished"},
	}
	for st, text := range s.texts {
		if st == stPruneGraphsLock || st == stSchemaDescribe || strings.HasPrefix(string(st), "audit_") { // an audit looks at everything
			continue
		}
		described, err := conn.Conn().PgConn().Prepare(t.Context(), string(st), text, nil)
		if err != nil {
			t.Fatal(err)
		}
		arguments := ""
		if n := len(described.ParamOIDs); n > 0 {
			arguments = "(" + strings.TrimSuffix(strings.Repeat("null, ", n), ", ") + ")"
		}
		rows, err := conn.Query(t.Context(), fmt.Sprintf("explain (costs off) execute %q%s", string(st), arguments), pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", st, err)
		}
		for _, index := range wanted[st] {
			if !strings.Contains(strings.Join(lines, "\n"), " "+index) {
				t.Errorf("%s does not use %s:\n%s", st, index, strings.Join(lines, "\n"))
			}
		}
		for _, line := range lines {
			for _, table := range []string{"runs", "starts", "events", "start_keys", "graphs"} {
				if strings.Contains(line, "Seq Scan on "+table) && whole[st] != table {
					t.Errorf("%s reads all of %s:\n%s", st, table, strings.Join(lines, "\n"))
				}
			}
		}
	}
	groupsTouchNoFinishedRun(t, s, conn)
}

// group is the size of the groups that are executed.
const group = 200

// groupsTouchNoFinishedRun: with nineteen of twenty runs finished, a claim of 200, a group of 200 commits
// and lists of 200 read no more rows than they answer, give or take those that lie beside. They are
// executed, not only planned.
func groupsTouchNoFinishedRun(t *testing.T, s *Store, conn *pgxpool.Conn) {
	array := func(kind string, element func(n int) string) string {
		elements := make([]string, group)
		for n := range elements {
			elements[n] = element(n)
		}
		return "array[" + strings.Join(elements, ",") + "]::" + kind + "[]"
	}
	each := func(kind, element string) string { return array(kind, func(int) string { return element }) }
	tokens := array("text", func(n int) string { return fmt.Sprintf("'token-%d'", n) })
	const now = "timestamptz '2032-01-01'"
	// The members are the first that are claimed: of each hundred the third.
	third := func(format string) func(int) string {
		return func(n int) string { return fmt.Sprintf(format, n*100+3) }
	}
	commits := strings.Join([]string{
		"null", array("text", third("'run-%08d'")), each("bigint", "1"), each("text", "'token'"), each("text", "'graph'"),
		array("text", func(n int) string { return fmt.Sprintf("'hash-%d'", (n*100+3)%3) }),
		array("timestamptz", third("timestamptz '2030-01-01' + %d * interval '1 second'")), each("text", "'done'"), each("timestamptz", now),
		each("timestamptz", now), each("timestamptz", "null"), each("boolean", "false"), each("boolean", "false"), each("text", "'run_completed'"),
		array("text", func(n int) string { return fmt.Sprintf("'next-%d'", n) }), each("bytea", "'{}'"), each("timestamptz", now),
		each("bigint", "4"), each("bigint", "3"), each("text", "'next'"), each("bytea", "'{}'"), each("bytea", "null"),
	}, ", ")
	for _, q := range []struct {
		st        statement
		arguments string
		rows      int // that are answered
		most      int // rows that may be read of runs
	}{
		{stClaim, fmt.Sprintf("%s, null, 60000000, %d, null, 3, %s, true", now, group, tokens), group, 4 * group},
		{stDueReady, fmt.Sprintf("%s, %d, null, null", now, group), group, 2 * group},
		{stCommitGroup, commits, group, 4 * group},
		{stRunList, fmt.Sprintf("null, '', null, null, null, %d", group), group, 2 * group},
		{stRunList, fmt.Sprintf("null, '', null, null, array['done'], %d", group), group, 2 * group},
		{stRunListByStatus, fmt.Sprintf("null, '', null, null, array['waiting'], %d", group), group, 2 * group},
		{stRunListByStatus, fmt.Sprintf("null, '', null, null, array['waiting', 'running', 'failed'], %d", group), group, 4 * group},
		{stRunListByStatusOfOwner, fmt.Sprintf("null, '', null, null, array['running'], %d, 'tenant-1'", group/2), group / 2, 2 * group},
		{stRunListOfOwner, fmt.Sprintf("null, '', null, null, null, %d, 'tenant-1'", group), group, 2 * group},
	} {
		text := s.texts[q.st]
		name := "group of " + string(q.st)
		if _, err := conn.Conn().PgConn().Prepare(t.Context(), name, text, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "begin", pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		rows, err := conn.Query(t.Context(), fmt.Sprintf("explain (analyze, timing off, costs off, summary off) execute %q(%s)", name, q.arguments), pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatalf("%s: %v", q.st, err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", q.st, err)
		}
		if _, err := conn.Exec(t.Context(), "rollback", pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		plan := strings.Join(lines, "\n")
		read := 0
		for _, m := range rowsRead.FindAllStringSubmatch(plan, -1) {
			n, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			loops, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			read += int(math.Round(n * float64(loops)))
		}
		for _, m := range rowsRemoved.FindAllStringSubmatch(plan, -1) {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			read += n
		}
		if first := rowsFirst.FindStringSubmatch(plan); first == nil || first[1] != strconv.Itoa(q.rows) {
			t.Errorf("%s answers %v rows; it must answer %d:\n%s", q.st, first, q.rows, plan)
		}
		if read > q.most || read == 0 {
			t.Errorf("%s reads %d rows of runs for %d; %d may be:\n%s", q.st, read, q.rows, q.most, plan)
		}
		if _, err := conn.Exec(t.Context(), fmt.Sprintf("deallocate %q", name), pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
}

// What an executed plan tells: the rows of each scan of runs, those that a filter of it threw away, and
// those of the whole. Newer servers tell fractions of rows.
var (
	rowsRead    = regexp.MustCompile(`Scan (?:Backward )?(?:using \w+ )?on runs[^\n]*\(actual rows=(\d+(?:\.\d+)?) loops=(\d+)\)`)
	rowsRemoved = regexp.MustCompile(`Rows Removed by (?:Filter|Index Recheck): (\d+)`)
	rowsFirst   = regexp.MustCompile(`\(actual rows=(\d+)(?:\.\d+)? loops=1\)`)
)
