package postgres_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/internal/mutant"
	"github.com/belay-run/belay/proptest"
)

// mutants break what a wrapper around a store cannot reach: the statements. Each is the clauses whose cases
// must kill it (none: Check does), the statement, a text in it and what the text becomes.
var mutants = [][4]string{
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
	{"T1 E1", "commit", " and not o.found", ""},
	{"T1 E1", "commit", "seq >= $22::bigint", "seq = $22::bigint"},
	{"T3 E1", "mutate", " and not o.found", ""},
	{"T6", "commit_group", "r.checkpoint_seq = g.expected and ", ""},
	{"T6", "commit_group", "r.claim_token = g.token and ", ""},
	{"T6", "commit_group", "claim_attempts = 0, ", ""},
	{"T6 E2", "commit_group", "from committed where event_seq > 0", "from committed where event_seq < 0"},
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
	{"E2", "event_list", "order by seq asc limit 1", "order by seq desc limit 1"},
	{"E2", "event_fetch", "seq >= $3::bigint", "seq > $3::bigint"},
	{"E2", "event_latest", "order by seq desc", "order by seq"},
	{"G1", "graph_save", "do nothing", "do update set published_at = excluded.published_at"},
	{"G3", "graph_list", "(published_at, graph_hash) <", "(published_at, graph_hash) <="},
	{"X7", "prune_runs", "status = any ($2::text[])", "cardinality($2::text[]) > 0"},
	{"X7", "prune_runs", "finished_at < $1::timestamptz", "finished_at <= $1::timestamptz"},
	{"T6 A4", "commit_group", "greatest(r.claimed_at, coalesce(g.now, clock_timestamp()))", "coalesce(g.now, clock_timestamp())"},
	{"T6", "commit_group", "claim_abandons = 0, ", ""},
	{"T6 T1", "commit_group", "r.graph_hash = g.graph_hash and ", ""},
	{"T6", "commit_group", "r.owner = $1::text", "r.owner <> '-'"},
	{"T6", "commit_group", "for no key update of r skip locked", "for no key update of r"},
	{"K7 X2", "refresh_group", "for no key update of r skip locked", "for no key update of r"},
	{"K7 X2", "refresh_group", "where r.claim_token = g.token and (g.id in (select id from free)) is not true", "where (g.id in (select id from free)) is not true"},
	{"K4", "claim", "order by claimed_at, id limit $4::bigint for no key update skip locked", "order by claimed_at, id limit $4::bigint for no key update"},
	{"K9", "abandon", "r.claim_abandons + s.retry::integer", "r.claim_abandons + (s.retry and not $6::boolean)::integer"},
	{"K9", "abandon", "least(r.claim_abandons, ", "least(r.claim_abandons + 1, "},
	{"K9", "abandon", "$6::boolean or r.claim_abandons", "$6::boolean and r.claim_abandons"},
	{"K5 K4", "due_of_owners", "order by r.wake_at, r.id limit", "order by r.id limit"},
	{"X10", "due_held", "count(*)", "count(distinct owner)"},
	{"E2", "event_list", "max(seq) as latest", "min(seq) as latest"},
	{"E2", "event_list", "order by seq limit", "order by seq desc limit"},
	{"G3", "graph_list", "order by published_at desc, graph_hash desc", "order by published_at desc, graph_hash"},
	{"G3 G1 C10", "graph_list", "owner = $1::text and ", "$1::text <> '-' and "},
	{"X7", "prune_graphs", "g.published_at < $1::timestamptz", "g.published_at <= $1::timestamptz"},
	{"X7", "prune_graphs", "n.owner = g.owner and ", ""},
	{"X7", "prune_graphs", "s.owner = g.owner and ", ""},
	{"X7", "prune_runs", "start_keys where run_id = any (array (select id from gone))", "start_keys where false"},
	{"K10", "recover", "claim_abandons = 0, ", ""},
	{"R2", "insert_keyed", "k.held_until <= (select now from instant)", "k.held_until < (select now from instant)"},
	{"R2", "insert_keyed", "do update set run_id = excluded.run_id, ", "do update set "},
	{"T3", "mutate", "claim_attempts = 0, ", ""},
	{"T3", "mutate", "s.checkpoint_seq = $2::bigint and not o.found", "true"},
	{"T3", "mutate", "g.owner = s.owner and ", ""},
	{"X2", "insert_group", "s.owner = $1::text and ", ""},
	{"X2 R3", "insert_group", "(g.token is not null)::integer", "0"},
	{"R5", "run_list", "s.graph_id = $3::text", "$3::text <> ''"},
	{"K1 X4 K5", "due_ready", "r.wake_at <= $1::timestamptz", "r.wake_at < $1::timestamptz"},
	{"K2 X4 X10", "due_ready", "order by r.wake_at, r.id limit", "order by r.id limit"},
	{"X4", "due_expired", "order by e.claimed_at, e.id", "order by e.id"},
	{"K5 K1", "due_owners", "h.wake_at <= $1::timestamptz", "h.wake_at < $1::timestamptz"},
	{"K7", "refresh", "id = $1::text and claim_token", "$1::text <> '' and claim_token"},
	{"K9", "abandon", "r.id = $1::text and ", "$1::text <> '' and "},
	{"K8", "release", "id = $1::text and claim_token", "$1::text <> '' and claim_token"},
}

// TestMutatedStatementsAreKilled: the kit notices a statement that says something else. A text
// that is not found exactly once fails, so that the list keeps up with the statements. Check is tried
// on every mutant when RAPID_CHECKS asks for many random cases.
func TestMutatedStatementsAreKilled(t *testing.T) {
	a := direct(t)
	var m mutant.Statement
	a.prepare = func(t proptest.T, s *postgres.Store) {
		t.Helper()
		quoted := strings.NewReplacer(`:"schema"`, `"`+s.Schema()+`"`)
		if err := s.Replace(m.Name, quoted.Replace(m.From), quoted.Replace(m.To)); err != nil {
			t.Fatalf("%v", err)
		}
	}
	open := opener(t, a)
	mutant.Statements{
		All: mutant.List(mutants),
		Mutate: func(s mutant.Statement) (proptest.Opener, func(), error) {
			m = s
			return open, func() {}, nil
		},
		Timeout: 2 * time.Second, Check: os.Getenv("RAPID_CHECKS") != "", TextsOnly: raceDetector,
	}.Kill(t)
}
