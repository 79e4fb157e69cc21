package sqlite

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belay-run/belay/proptest"
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
	{"T4", "commit_release", "checkpoint_seq = ?3 and ", "?3 = ?3 and "},
	{"T4", "commit_release", "claim_token = ?4", "claim_token is not null"},
	{"T4", "commit_retain", "claim_token = ?4", "claim_token is not null"},
	{"A4", "commit_retain", "max(claimed_at, ?13)", "?13"},
	{"T2", "commit_release", "claim_attempts = 0, ", ""},
	{"T2", "commit_retain", "claim_abandons = 0, ", ""},
	{"R5 S1 T2", "commit_release", "updated_at = ?10, ", ""},
	{"T2 R4 C9", "commit_release", "checkpoint_type = ?12, ", ""},
	{"T1", "commit_release", "(?2 is null or owner = ?2)", "(?2 is null or owner is not null)"},
	{"T1", "commit_release", "graph_hash = ?7", "?7 = ?7"},
	{"T1", "commit_retain", "started_at = ?8", "?8 = ?8"},
	{"A4 X2", "claim_refresh", "max(claimed_at, ?3)", "?3"},
	{"K7", "claim_refresh", "claim_token = ?2", "claim_token is not null"},
	{"K9", "claim_store", "claim_abandons = ?6", "claim_abandons = min(?6, 1)"},
	{"K1", "due_ready", "wake_at <= ?1", "wake_at < ?1"},
	{"K2", "due_ready", "order by wake_at, id", "order by wake_at desc, id"},
	{"", "due_expired", "order by claimed_at, id", "order by claimed_at, id desc"},
	{"T3", "mutate", "claim_abandons = 0, ", ""},
	{"T3", "mutate", "poisoned_at = null, poison_reason = null,", "poison_reason = poison_reason,"},
	{"R5", "run_list", "(started_at, id) < (?1, ?2)", "(started_at, id) <= (?1, ?2)"},
	{"R5", "run_list", "+graph_hash = ?4", "?4 = ?4"},
	{"R5", "run_list_of_owner", "owner = ?7 and ", "?7 = ?7 and "},
	{"", "run_list_live", "(started_at, id) < (?1, ?2)", "(started_at, id) <= (?1, ?2)"},
	{"R5", "run_list_live", "(?7 is null or +owner = ?7)", "?7 is ?7"},
	{"", "run_list_live", "instr(?5, ',' || status || ',') > 0", "?5 = ?5"},
	{"K5", "turn_take", "coalesce(max(turn), 0) + 1", "0"},
	{"A6", "run_inspect", "(?2 is null or r.owner = ?2)", "(?2 is null or r.owner is not null)"},
	{"A6", "run_fetch", "(?2 is null or r.owner = ?2)", "(?2 is null or r.owner is not null)"},
	{"E2", "event_list", "seq > ?2", "seq >= ?2"},
	{"E2", "event_latest", "order by seq desc", "order by seq"},
	{"R2", "key_find", "k.owner = ?1 and ", "?1 = ?1 and "},
	{"R2", "key_take", "held_until = excluded.held_until", "held_until = held_until"},
	{"T5", "run_checkpoint_exists", "run = ?1 and ", "run <> ?1 and "},
	{"G3", "graph_list", "(published_at, graph_hash) < (?3, ?4)", "(published_at, graph_hash) <= (?3, ?4)"},
	{"X7", "prune_runs", "instr(?2, ',' || status || ',') > 0", "status <> ''"},
}

// TestMutatedStatementsAreKilled: the kit notices a statement that says something else. A text
// that is not found exactly once fails, so that the list keeps up with the statements. The race
// detector has nothing to find here and would take minutes: with it only the texts are looked for.
func TestMutatedStatementsAreKilled(t *testing.T) {
	for name, v := range map[string]string{"rapid.shrinktime": "0s", "rapid.nofailfile": "true", "rapid.seed": "7", "rapid.checks": "20"} {
		before := flag.Lookup(name).Value.String()
		if err := flag.Set(name, v); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set(name, before) })
	}
	killed, byCheck := 0, 0
	var table strings.Builder
	for _, m := range mutants {
		i := slices.IndexFunc(statements, func(s *statement) bool { return s.name == m.statement })
		if i < 0 || strings.Count(statements[i].text, m.from) != 1 {
			t.Errorf("%s: the statement %s does not hold %q exactly once", m.clause, m.statement, m.from)
			continue
		}
		if raceDetector {
			continue
		}
		original := statements[i].text
		statements[i].text = strings.Replace(original, m.from, m.to, 1)
		var cases []string
		if m.clause != "" {
			cases = casesThatFail(strings.Fields(m.clause))
		}
		rule := ruleThatCheckBreaks()
		statements[i].text = original
		switch {
		case m.clause != "" && len(cases) == 0:
			t.Errorf("%s: no case of its clause kills %s with %q for %q", m.clause, m.statement, m.to, m.from)
		case m.clause == "" && rule == "":
			t.Errorf("Check does not kill %s with %q for %q", m.statement, m.to, m.from)
		default:
			killed++
		}
		if rule != "" {
			byCheck++
		}
		fmt.Fprintf(&table, "%-8s %-22s %-40.40s -> %-40.40s %-30s %s\n", m.clause, m.statement, m.from, cmp.Or(m.to, "(nothing)"), cmp.Or(strings.Join(cases[:min(1, len(cases))], ""), "-"), cmp.Or(rule, "-"))
	}
	t.Logf("\nclause, statement, text, mutated text, case that kills it, rule that Check breaks\n%sby Check alone %d\nkilled %d of %d", table.String(), byCheck, killed, len(mutants))
}

// openMutated opens an empty store whose statements are as they are now.
func openMutated(t proptest.T) proptest.Opened {
	t.Helper()
	dir, err := os.MkdirTemp("", "belay")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var set atomic.Pointer[time.Time]
	s, err := Open(context.Background(), filepath.Join(dir, "belay.db"), Options{Synchronous: Normal, Now: func() time.Time {
		if now := set.Load(); now != nil {
			return *now
		}
		return time.Now()
	}})
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return proptest.Opened{Store: s, Hooks: proptest.Hooks{SetClock: func(now time.Time) { set.Store(&now) }}}
}

func casesThatFail(clauses []string) (cases []string) {
	var report proptest.Report
	proptest.Attempt("conformance", nil, func(t proptest.T) {
		report = proptest.Conformance(t, openMutated, proptest.Options{Only: clauses, Timeout: 10 * time.Second, Log: func(string) {}})
	})
	for _, f := range report.Failed() {
		cases = append(cases, f.Case)
	}
	return cases
}

var ruleBroken = regexp.MustCompile(`failed after \d+ tests?: ([A-Z]\d+): `)

func ruleThatCheckBreaks() string {
	var said strings.Builder
	passed := proptest.Attempt("check", func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }, func(t proptest.T) {
		proptest.Check(t, openMutated, proptest.Options{Rounds: 2, Log: func(string) {}})
	})
	if passed {
		return ""
	}
	if found := ruleBroken.FindStringSubmatch(said.String()); found != nil {
		return found[1]
	}
	return "?"
}
