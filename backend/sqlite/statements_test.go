package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestEveryStatementHasItsPlan: the plans of production, as SQLite explains them. None
// reads through a table, none sorts, those that walk a whole index walk one of the partial ones,
// which hold only runs that are due or claimed, and only pages of the history go along it.
func TestEveryStatementHasItsPlan(t *testing.T) {
	s := openStore(t, Options{})
	plans := make(map[string]string)
	for _, st := range statements {
		plans[st.name] = explain(t, s, st)
	}
	datadriven.RunTest(t, "testdata/plans", func(t *testing.T, d *datadriven.TestData) string {
		plan, found := plans[d.Cmd]
		if !found {
			d.Fatalf(t, "no such statement")
		}
		delete(plans, d.Cmd)
		return plan
	})
	for name := range plans {
		t.Errorf("testdata/plans does not have the statement %s", name)
	}
}

func explain(t *testing.T, s *Store, st *statement) string {
	t.Helper()
	var b strings.Builder
	depth := map[int64]int{0: -1}
	err := s.readers.use(context.Background(), func(c *conn) error {
		return c.read(context.Background(), "explain query plan "+withoutComments(st.text), func(r row) error {
			depth[r.int(0)] = depth[r.int(1)] + 1
			line := r.text(3)
			fmt.Fprintf(&b, "%s%s\n", strings.Repeat("  ", depth[r.int(0)]), line)
			if reason := badPlan(st.name, line); reason != "" {
				t.Errorf("%s: %s: %s", st.name, line, reason)
			}
			return nil
		}, make([]any, 20)...)
	})
	if err != nil {
		t.Fatalf("%s: %v", st.name, err)
	}
	if b.Len() == 0 {
		return "nothing to plan\n"
	}
	return b.String()
}

// overHistory are the indexes that hold the runs of all time, in the order of some instant, and the
// statements that go along them: pages of the history itself, and what retention deletes.
var overHistory = map[string][]string{
	"belay_runs_newest":       {"run_list"},
	"belay_runs_owner_newest": {"run_list_of_owner"},
	"belay_runs_finished":     {"prune_runs"},
}

// badPlan is why a line of a statement's plan must not be.
func badPlan(statement, line string) string {
	if strings.HasPrefix(statement, "audit_") {
		return "" // an audit reads everything: that is what it is for
	}
	for index, may := range overHistory {
		// With equality on the first column alone it is a look-up, and no walk.
		if strings.Contains(line, "INDEX "+index+" (") && !strings.HasSuffix(line, "(owner=?)") && !slices.Contains(may, statement) {
			return "it goes along the history"
		}
	}
	switch {
	case strings.Contains(line, "TEMP B-TREE"):
		return "it sorts"
	case strings.HasPrefix(line, "SCAN CONSTANT ROW"), strings.HasPrefix(line, "SCAN (subquery"):
		return ""
	case strings.HasPrefix(line, "SCAN belay_turns") && statement == "prune_turns":
		return "" // a row an owner
	case strings.HasPrefix(line, "SCAN"):
		for _, partial := range []string{"belay_runs_ready", "belay_runs_owner_ready", "belay_runs_claimed"} {
			if strings.HasSuffix(line, "INDEX "+partial) {
				return ""
			}
		}
		return "it reads through everything"
	}
	return ""
}

func withoutComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestBadPlansAreFound: what the test of the plans looks for, it finds.
func TestBadPlansAreFound(t *testing.T) {
	for _, c := range []struct {
		statement, line string
		bad             bool
	}{
		{"due_ready", "SCAN belay_runs", true},
		{"due_ready", "SCAN belay_runs USING INDEX belay_runs_graph", true},
		{"due_ready", "USE TEMP B-TREE FOR ORDER BY", true},
		{"due_ready", "SCAN belay_runs USING INDEX belay_runs_ready", false},
		{"due_ready", "SEARCH belay_runs USING INDEX belay_runs_claimed (claimed_at<?)", false},
		{"due_ready", "SEARCH belay_runs USING INTEGER PRIMARY KEY (rowid=?)", false},
		{"run_list_of_owner", "SCAN belay_runs USING COVERING INDEX belay_runs_owner_newest", true},
		{"run_list", "SCAN belay_runs USING INDEX belay_runs_newest", true},
		{"run_list", "SEARCH belay_runs USING INDEX belay_runs_newest ((started_at,id)<(?,?))", false},
		{"run_list_live", "SEARCH belay_runs USING INDEX belay_runs_newest ((started_at,id)<(?,?))", true},
		{"run_list_live", "SEARCH belay_runs USING INDEX belay_runs_live ((started_at,id)<(?,?))", false},
		{"due_next_owner", "SEARCH belay_runs USING INDEX belay_runs_owner_newest (owner>?)", true},
		{"audit_runs", "SCAN belay_runs", false},
	} {
		if got := badPlan(c.statement, c.line); (got != "") != c.bad {
			t.Errorf("%s: %s: %q", c.statement, c.line, got)
		}
	}
}
