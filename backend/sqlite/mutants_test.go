package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belay-run/belay/internal/mutant"
	"github.com/belay-run/belay/proptest"
)

// mutants break what a wrapper around a store cannot reach: the statements. Each is the clauses whose cases
// must kill it (none: Check does), the statement, a text in it and what the text becomes.
var mutants = [][4]string{
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
	{"E2", "event_list", "seq > ?2", "seq > ?2 + 1"},
	{"E2", "event_bounds", "order by seq limit", "order by seq desc limit"},
	{"E1 T1", "event_from", "seq >= ?2", "seq > ?2 + 1"},
	{"E1 T1", "commit_retain", "select max(seq)", "select min(seq) - 2"},
	{"E2", "event_latest", "order by seq desc", "order by seq"},
	{"R2", "key_find", "k.owner = ?1 and ", "?1 = ?1 and "},
	{"R2", "key_take", "held_until = excluded.held_until", "held_until = held_until"},
	{"T5", "run_checkpoint_exists", "run = ?1 and ", "run <> ?1 and "},
	{"G3", "graph_list", "(published_at, graph_hash) < (?3, ?4)", "(published_at, graph_hash) <= (?3, ?4)"},
	{"X7", "prune_runs", "instr(?2, ',' || status || ',') > 0", "status <> ''"},
	{"K5", "due_ready_of_owner", "order by wake_at, id", "order by id"},
	{"K5 K1", "due_ready_of_owner", "wake_at <= ?1", "wake_at < ?1"},
	{"X10", "claims_held", "where claimed_at is not null", "where claimed_at is null"},
	{"K3", "claim_store", "claim_attempts = ?5", "claim_attempts = min(?5, 1)"},
	{"K9", "claim_store", "poison_reason = ?8", "poison_reason = case when ?8 is not null then 'max_claim_attempts_exceeded' end"},
	{"K7", "claim_refresh", "id = ?1 and ", "?1 = ?1 and "},
	{"T2", "commit_retain", "claim_attempts = 0, ", ""},
	{"T2", "commit_release", "claim_abandons = 0, ", ""},
	{"R5 S1 T2", "commit_retain", "updated_at = ?10, ", ""},
	{"T1", "commit_retain", "graph_hash = ?7", "?7 = ?7"},
	{"T1", "commit_retain", "(?2 is null or owner = ?2)", "(?2 is null or owner is not null)"},
	{"T1", "commit_release", "started_at = ?8", "?8 = ?8"},
	{"T4", "commit_retain", "checkpoint_seq = ?3 and ", "?3 = ?3 and "},
	{"T3", "mutate", "claim_attempts = 0, ", ""},
	{"T3", "mutate", "graph_hash = ?5, ", "graph_hash = graph_hash, "},
	{"R2", "key_find", "k.graph_id = ?2 and ", "?2 = ?2 and "},
	{"R2", "key_take", "set run = excluded.run, ", "set "},
	{"E2", "event_bounds", "select max(seq)", "select min(seq)"},
	{"E2", "event_list", "order by seq", "order by seq desc"},
	{"G3", "graph_list", "order by published_at desc, graph_hash desc", "order by published_at desc, graph_hash"},
	{"G3 G1 C10", "graph_list", "owner = ?1 and ", "?1 = ?1 and "},
	{"X7", "prune_graphs", "published_at < ?1", "published_at <= ?1"},
	{"X7", "prune_graphs", "n.owner = g.owner and ", ""},
	{"X7", "prune_keys", "run = ?1", "run = -?1"},
	{"R5", "run_list", "+graph_id = ?3", "?3 = ?3"},
}

// TestMutatedStatementsAreKilled: the kit notices a statement that says something else. A text
// that is not found exactly once fails, so that the list keeps up with the statements.
func TestMutatedStatementsAreKilled(t *testing.T) {
	mutant.Statements{
		All: mutant.List(mutants),
		Mutate: func(m mutant.Statement) (proptest.Opener, func(), error) {
			i := slices.IndexFunc(statements, func(s *statement) bool { return s.name == m.Name })
			if i < 0 || strings.Count(statements[i].text, m.From) != 1 {
				return nil, nil, fmt.Errorf("the statement does not hold the text exactly once")
			}
			original := statements[i].text
			statements[i].text = strings.Replace(original, m.From, m.To, 1)
			return openMutated, func() { statements[i].text = original }, nil
		},
		Timeout: 10 * time.Second, Check: true, TextsOnly: raceDetector,
	}.Kill(t)
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
