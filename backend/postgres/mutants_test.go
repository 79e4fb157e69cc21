package postgres_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/run"
)

// mutant is one clause broken in the text of one statement.
type mutant struct {
	// clause are those whose cases must kill it; "" when only Check does.
	clause    string
	statement string
	from, to  string
}

// mutants break what a wrapper around a store cannot reach: the statements.
var mutants = []mutant{
	{"T1", "commit", "s.checkpoint_seq = $3::bigint and ", ""},
	{"T4 C2", "commit", "s.claim_token = $4::text", "s.claim_token <> '' and $4::text <> ''"},
	{"A4", "commit", "greatest(r.claimed_at, coalesce($17::timestamptz, clock_timestamp()))", "coalesce($17::timestamptz, clock_timestamp())"},
	{"T2", "commit", "claim_attempts = 0, ", ""},
	{"T2", "commit", "claim_abandons = 0, ", ""},
	{"R5 S1 T2", "commit", "updated_at = $9::timestamptz, ", "updated_at = least(r.updated_at, $9::timestamptz), "},
	{"T2 R4 C9", "commit", "checkpoint_type = $14::text, ", "checkpoint_type = coalesce(r.checkpoint_type, $14::text), "},
	{"T1", "commit", "owner = $2::text", "owner <> '-'"},
	{"T1", "commit", "s.graph_hash = $6::text", "$6::text <> ''"},
	{"T1", "commit", "s.started_at = $7::timestamptz", "$7::timestamptz is not null"},
	{"T1 E1", "commit", " and c.seq is null", ""},
	{"E1", "commit", "where e.same is null", ""},
	{"T6", "commit_group", "r.checkpoint_seq = g.expected and ", ""},
	{"T6", "commit_group", "r.claim_token = g.token and ", ""},
	{"T6", "commit_group", "claim_attempts = 0, ", ""},
	{"T6", "commit_group", "where (e.run_id in (select id from committed)) is true", ""},
	{"K1", "claim", "wake_at <= (select now from instant)", "wake_at < (select now from instant)"},
	{"K1", "claim", "claimed_at < (select now from instant)", "claimed_at <= (select now from instant)"},
	{"K2", "claim", "order by wake_at, id limit", "order by wake_at desc, id limit"},
	{"K2", "claim", "else nth > 1 end", "else false end"},
	{"K2", "claim", "(class = 2) <> $5::boolean", "(class = 2) = $5::boolean"},
	{"K3", "claim", "claim_attempts < $6::integer", "claim_attempts <= $6::integer"},
	{"K3", "claim", "r.claim_attempts + t.lease::integer", "r.claim_attempts + 1"},
	{"K4", "claim", "order by wake_at, id limit $4::bigint for no key update skip locked", "order by wake_at, id limit $4::bigint for no key update"},
	{"K2", "claim", "order by claimed_at, id limit", "order by claimed_at desc, id limit"},
	{"X4", "due_ready", "f.hash in ('', r.graph_hash)", "f.hash <> '-'"},
	{"X4", "due_expired", "f.hash in ('', e.graph_hash)", "f.hash <> '-'"},
	{"K5", "due_of_owners", "limit o.most", "limit least(o.most, 1)"},
	{"K5", "turn_take", "set turn = s.turn", "set turn = t.turn"},
	{"X10", "due_held", "where claimed_at is not null", "where wake_at is not null"},
	{"K3 K5 X4", "due_take", "+ (r.claim_attempts < $2::integer)::integer", ""},
	{"A4 K7", "refresh", "greatest(claimed_at, coalesce($3::timestamptz, clock_timestamp()))", "coalesce($3::timestamptz, clock_timestamp())"},
	{"K7", "refresh", "claim_token = $2::text", "claim_token <> '' and $2::text <> ''"},
	{"X2 A4", "refresh_group", "greatest(r.claimed_at, coalesce($3::timestamptz, clock_timestamp()))", "coalesce($3::timestamptz, clock_timestamp())"},
	{"K8", "release", "claim_token = $2::text", "claim_token <> '' and $2::text <> ''"},
	{"K8", "release", "+ $4::bigint * interval", "+ 0 * $4::bigint * interval"},
	{"K9", "abandon", "r.claim_abandons < $5::integer", "r.claim_abandons <= $5::integer"},
	{"K9", "abandon", "r.checkpoint_seq = $3::bigint", "$3::bigint > 0"},
	{"K9", "abandon", "claim_attempts = greatest(0, r.claim_attempts - 1),", ""},
	{"K10", "recover", "claim_attempts = 0, ", ""},
	{"K10", "recover", "r.id = s.id and s.poisoned", "r.id = s.id and not s.finished"},
	{"T3", "mutate", "claim_abandons = 0, ", ""},
	{"T3", "mutate", "update :\"schema\".starts t set graph_hash = $3::text", "update :\"schema\".starts t set graph_hash = t.graph_hash"},
	{"T3", "mutate_read", "r.owner = $2::text", "r.owner <> '-'"},
	{"R1", "insert", "where owner = $2::text and graph_id", "where graph_id"},
	{"R1 T2", "insert", "coalesce($11::timestamptz, i.now)", "coalesce(i.now, $11::timestamptz)"},
	{"R2", "insert_keyed", "k.held_until <= (select now from instant)\n    and ", ""},
	{"R2", "insert_keyed", " and h.finished_at is not null", ""},
	{"R2", "insert_keyed", "held_until = excluded.held_until", "held_until = k.held_until"},
	{"X2", "insert_group", "coalesce(g.wake_at, g.now)", "coalesce(g.now, g.wake_at)"},
	{"R5", "run_list", "(s.started_at, s.id) <", "(s.started_at, s.id) <="},
	{"R5", "run_list", "s.graph_hash = $4::text", "$4::text <> ''"},
	{"R5", "run_list", "r.status = any ($5::text[])", "cardinality($5::text[]) > 0"},
	{"R5", "run_list_by_status", "r.status = q.status and ", ""},
	{"R5", "run_list_by_status", "(r.started_at, r.id) <", "(r.started_at, r.id) <="},
	{"R5", "run_list_by_status", "r.graph_hash = $4::text", "$4::text <> ''"},
	{"R5", "run_list_by_status_of_owner", " and r.owner = $7::text", " and $7::text <> '-'"},
	{"R5", "run_list_of_owner", "s.owner = $7::text and ", "$7::text <> '-' and "},
	{"A6", "run_inspect", "owner = $2::text", "owner <> '-'"},
	{"A6", "run_fetch", "owner = $2::text", "owner <> '-'"},
	{"E2", "event_list", "seq > $3::bigint", "seq >= $3::bigint"},
	{"E2", "event_list", "min(seq) as oldest", "max(seq) as oldest"},
	{"E2", "event_latest", "order by seq desc", "order by seq"},
	{"G1", "graph_save", "do nothing", "do update set published_at = excluded.published_at"},
	{"G3", "graph_list", "(published_at, graph_hash) <", "(published_at, graph_hash) <="},
	{"X7", "prune_runs", "status = any ($2::text[])", "cardinality($2::text[]) > 0"},
	{"X7", "prune_runs", "finished_at < $1::timestamptz", "finished_at <= $1::timestamptz"},
}

// TestMutatedStatementsAreKilled: the kit notices a statement that says something else. A text
// that is not found exactly once fails, so that the list keeps up with the statements, and so does
// a mutant on which not even a run from start to end works, since anything would kill it. The
// race detector has nothing to find here and would take minutes: with it only the texts are looked
// for. Check is tried on every mutant when RAPID_CHECKS asks for many random cases.
func TestMutatedStatementsAreKilled(t *testing.T) {
	for name, v := range map[string]string{"rapid.shrinktime": "0s", "rapid.nofailfile": "true", "rapid.seed": "7", "rapid.checks": "20"} {
		before := flag.Lookup(name).Value.String()
		if err := flag.Set(name, v); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set(name, before) })
	}
	a := direct(t)
	var m mutant
	a.prepare = func(t proptest.T, s *postgres.Store) {
		t.Helper()
		quoted := strings.NewReplacer(`:"schema"`, `"`+s.Schema()+`"`)
		if err := s.Replace(m.statement, quoted.Replace(m.from), quoted.Replace(m.to)); err != nil {
			t.Fatalf("%v", err)
		}
	}
	open := opener(t, a)
	killed, byCheck := 0, 0
	var table strings.Builder
	for _, m = range mutants {
		viable := proptest.Attempt("smoke", t.Logf, func(t proptest.T) {
			s := open(t).Store
			if raceDetector {
				return
			}
			if err := smoke(s); err != nil {
				t.Fatalf("%v", err)
			}
		})
		if !viable {
			t.Errorf("%s with %q for %q is no mutant: it cannot be made, or nothing works on it", m.statement, m.to, m.from)
		}
		if !viable || raceDetector {
			continue
		}
		var by []string
		for _, clause := range strings.Fields(m.clause) {
			if by = append(by, casesThatFail(open, clause)...); len(by) > 0 {
				break
			}
		}
		rule := ""
		if m.clause == "" || os.Getenv("RAPID_CHECKS") != "" {
			rule = ruleThatCheckBreaks(open)
		}
		switch {
		case m.clause != "" && len(by) == 0:
			t.Errorf("%s: no case of its clause kills %s with %q for %q", m.clause, m.statement, m.to, m.from)
		case m.clause == "" && rule == "":
			t.Errorf("Check does not kill %s with %q for %q", m.statement, m.to, m.from)
		default:
			killed++
		}
		if rule != "" {
			byCheck++
		}
		fmt.Fprintf(&table, "%-18s %-40.40q %-40.40q %-36s %s\n", m.statement, m.from, m.to, cmp.Or(strings.Join(by[:min(1, len(by))], ""), "-"), cmp.Or(rule, "-"))
	}
	t.Logf("\nstatement, text, mutated text, case that kills it, rule that Check breaks\n%sby Check alone %d\nkilled %d of %d", table.String(), byCheck, killed, len(mutants))
}

// smoke takes a run from its start to its end.
func smoke(s backend.Store) error {
	ctx := context.Background()
	ref, raw := aGraph()
	if err := s.SaveGraph(ctx, backend.Tenantless(), ref, raw); err != nil {
		return err
	}
	in := draft("smoke")
	if _, err := s.InsertRun(ctx, backend.Tenantless(), in); err != nil {
		return err
	}
	batch, err := s.ClaimDue(ctx, claim.Policy{Now: began.Add(time.Second), TTL: time.Minute, Limit: 1, MaxAttempts: 3})
	if err != nil || len(batch.Leases) != 1 {
		return fmt.Errorf("a claim gave %d leases: %w", len(batch.Leases), err)
	}
	if _, err := s.Commit(ctx, backend.System(), ending(in.Document, batch.Leases[0].Token)); err != nil {
		return err
	}
	d, err := s.FetchRun(ctx, backend.System(), "smoke")
	if err == nil && d.Status != run.Done {
		err = fmt.Errorf("the run is %s", d.Status)
	}
	return err
}

func casesThatFail(open proptest.Opener, clause string) (cases []string) {
	var report proptest.Report
	proptest.Attempt("conformance", nil, func(t proptest.T) {
		report = proptest.Conformance(t, open, proptest.Options{Only: []string{clause}, Timeout: 2 * time.Second, Log: func(string) {}})
	})
	for _, f := range report.Failed() {
		cases = append(cases, f.Case)
	}
	return cases
}

var ruleBroken = regexp.MustCompile(`failed after \d+ tests?: ([A-Z]\d+): `)

func ruleThatCheckBreaks(open proptest.Opener) string {
	var said strings.Builder
	passed := proptest.Attempt("check", func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }, func(t proptest.T) {
		proptest.Check(t, open, proptest.Options{Rounds: 2, Log: func(string) {}})
	})
	if passed {
		return ""
	}
	if found := ruleBroken.FindStringSubmatch(said.String()); found != nil {
		return found[1]
	}
	return "?"
}
