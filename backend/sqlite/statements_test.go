package sqlite

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestEveryStatementHasItsPlan: the plans of production, as SQLite explains them. None
// reads through a table, none sorts, and those that walk a whole index walk one of the
// partial ones, which hold only runs that are due or claimed.
func TestEveryStatementHasItsPlan(t *testing.T) {
	s := openStore(t, Options{})
	plans := make(map[string]string)
	for _, st := range statements {
		if !strings.HasPrefix(st.name, "event_insert_") {
			plans[st.name] = explain(t, s, st)
		}
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
			// An audit reads everything: that is what it is for.
			if reason := badPlan(line); reason != "" && !strings.HasPrefix(st.name, "audit_") {
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

func badPlan(line string) string {
	switch {
	case strings.Contains(line, "TEMP B-TREE"):
		return "it sorts"
	case strings.HasPrefix(line, "SCAN CONSTANT ROW"), strings.HasPrefix(line, "SCAN (subquery"):
		return ""
	case strings.HasPrefix(line, "SCAN"):
		for _, partial := range []string{"belay_runs_ready", "belay_runs_owner_ready", "belay_runs_claimed"} {
			if strings.HasSuffix(line, "INDEX "+partial) {
				return ""
			}
		}
		for _, ordered := range []string{"belay_runs_newest"} {
			if strings.HasSuffix(line, "INDEX "+ordered) {
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
	for line, bad := range map[string]bool{
		"SCAN belay_runs": true,
		"SCAN belay_runs USING INDEX belay_runs_graph":                    true,
		"USE TEMP B-TREE FOR ORDER BY":                                    true,
		"SCAN belay_runs USING INDEX belay_runs_ready":                    false,
		"SEARCH belay_runs USING INDEX belay_runs_claimed (claimed_at<?)": false,
		"SEARCH belay_runs USING INTEGER PRIMARY KEY (rowid=?)":           false,
		"SCAN belay_runs USING COVERING INDEX belay_runs_owner_newest":    true,
	} {
		if got := badPlan(line); (got != "") != bad {
			t.Errorf("%s: %q", line, got)
		}
	}
}
