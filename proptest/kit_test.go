package proptest_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belay-run/belay/backend/memory"
	kills "github.com/belay-run/belay/internal/mutant"
	"github.com/belay-run/belay/proptest"
)

func TestCaseIDsAreStableNamesOfClauses(t *testing.T) {
	id := regexp.MustCompile(`^[SARKTEGFXCH]\d+\.[a-z0-9-]+$`)
	seen := map[string]bool{}
	for _, c := range proptest.Cases() {
		if !id.MatchString(c.ID) || seen[c.ID] || c.Says == "" {
			t.Errorf("the case %q is misnamed, there twice, or says nothing", c.ID)
		}
		seen[c.ID] = true
	}
}

// elsewhere are the clauses that no case proves, and what does.
var elsewhere = map[string]string{
	"F1": "the whole suite, run on a store behind the adapter",
	"F3": "TestWhatCannotBeTriedIsUntested",
}

func TestEveryClauseOfTheContractIsProved(t *testing.T) {
	page, err := os.ReadFile("../docs/contract.md")
	if err != nil {
		t.Fatal(err)
	}
	var report proptest.Report
	for _, c := range proptest.Cases() {
		report.Findings = append(report.Findings, proptest.Finding{Case: c.ID, Clause: c.Clause(), Result: proptest.Passed})
	}
	clauses := regexp.MustCompile(`(?m)^(?:\*\*|\| )([SARKTEGFXC]\d+)[, ]`).FindAllStringSubmatch(string(page), -1)
	if len(clauses) < 50 {
		t.Fatalf("the contract has %d clauses; has its form changed?", len(clauses))
	}
	for _, m := range clauses {
		proved := slices.ContainsFunc(report.Clauses(), func(c proptest.ClauseResult) bool { return c.Clause == m[1] })
		if why, is := elsewhere[m[1]]; proved == is {
			t.Errorf("clause %s: proved by a case %v, elsewhere %q", m[1], proved, why)
		}
	}
}

func TestWhatCannotBeTriedIsUntested(t *testing.T) {
	bare := func(t proptest.T) proptest.Opened {
		b := newBroken(memory.Options{})
		t.Cleanup(func() { _ = b.Close() })
		return proptest.Opened{Store: b}
	}
	report := proptest.Conformance(t, bare, proptest.Options{Only: []string{"K4", "X2", "T6", "A3.told"}, Log: func(string) {}})
	for _, f := range report.Findings {
		switch want := map[bool]proptest.Result{true: proptest.Passed, false: proptest.Untested}[f.Case == "A3.told"]; {
		case f.Result != want:
			t.Errorf("%s is %s; it must be %s", f.Case, f.Result, want)
		case want == proptest.Untested && !strings.Contains(f.Why, "hook LockRun") && !strings.Contains(f.Why, "feature X2"):
			t.Errorf("%s does not say what it lacks: %q", f.Case, f.Why)
		}
	}
	if slices.Contains(report.Declared, "X2") || !slices.Contains(report.Absent, "X2") || !slices.Contains(report.Declared, "X1") {
		t.Errorf("declared %v, absent %v", report.Declared, report.Absent)
	}
	raw, err := json.Marshal(report)
	if err != nil || !strings.Contains(string(raw), `"case":"K4.skipped","clause":"K4"`) {
		t.Errorf("the report as JSON: %s, %v", raw, err)
	}
}

func TestAttemptTellsFailuresFromSuccesses(t *testing.T) {
	for _, c := range []struct {
		name   string
		do     func(t proptest.T)
		passes bool
	}{
		{"nothing", func(proptest.T) {}, true},
		{"an error", func(t proptest.T) { t.Errorf("no") }, false},
		{"a fatal error", func(t proptest.T) { t.Fatalf("no") }, false},
		{"a failure", func(t proptest.T) { t.FailNow() }, false},
		{"a panic", func(proptest.T) { panic("no") }, false},
		{"a failure in a cleanup", func(t proptest.T) { t.Cleanup(func() { t.Errorf("no") }) }, false},
	} {
		cleaned := false
		passed := proptest.Attempt(c.name, nil, func(t proptest.T) {
			t.Cleanup(func() { cleaned = true })
			c.do(t)
		})
		if passed != c.passes || !cleaned {
			t.Errorf("%s: passed %v, cleaned up %v", c.name, passed, cleaned)
		}
	}
}

func TestAPanicOfTheStoreFailsItsCaseAlone(t *testing.T) {
	panics := func(t proptest.T) proptest.Opened {
		b := newBroken(memory.Options{})
		b.recoverRun = nil
		return proptest.Opened{Store: b}
	}
	var report proptest.Report
	passed := proptest.Attempt("panics", nil, func(t proptest.T) {
		report = proptest.Conformance(t, panics, proptest.Options{Only: []string{"K10.healthy", "K1.ready"}})
	})
	if failed := report.Failed(); passed || len(failed) != 1 || failed[0].Case != "K10.healthy" || !strings.Contains(failed[0].Why, "panic") {
		t.Errorf("passed %v, failed %v", passed, failed)
	}
}

func TestAFailedHistoryIsShortAndNamesItsClause(t *testing.T) {
	m := commitMutants[slices.IndexFunc(commitMutants, func(m mutant) bool { return strings.Contains(m.name, "overtaken") })]
	kills.SetFlags(t, map[string]string{"rapid.nofailfile": "true", "rapid.seed": "7", "rapid.shrinktime": "1s"})
	var text strings.Builder
	passed := proptest.Attempt("history", func(format string, args ...any) { writef(&text, format, args...) }, func(t proptest.T) {
		proptest.Check(t, m.opener(), proptest.Options{})
	})
	rule, _ := kills.Told(text.String())
	if passed || rule != "T5" || !strings.Contains(text.String(), "commits again r") || strings.Contains(text.String(), "[rapid] draw") {
		t.Errorf("the history is\n%s", text.String())
	}
	if !strings.Contains(text.String(), "-rapid.seed=") {
		t.Errorf("the history does not say how to replay it")
	}
}
