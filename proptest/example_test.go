package proptest_test

import (
	"fmt"

	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/proptest"
)

// The kit outside of any test: what a command or a deployment check would do. In a test,
// pass t instead.
func Example() {
	open := func(t proptest.T) proptest.Opened {
		store := memory.New(memory.Options{})
		t.Cleanup(func() { _ = store.Close() })
		return proptest.Opened{Store: store}
	}

	var report proptest.Report
	passed := proptest.Attempt("memory", nil, func(t proptest.T) {
		report = proptest.Conformance(t, open, proptest.Options{Only: []string{"K4", "K9"}})
	})
	for _, c := range report.Clauses() {
		fmt.Println(c.Clause, c.Result())
	}
	fmt.Println("passed:", passed)
	fmt.Println(report.Findings[0].Case, "is", report.Findings[0].Result+":", report.Findings[0].Why)
	// Output:
	// K4 untested
	// K9 passed
	// C6 passed
	// H11 untested
	// passed: true
	// K4.skipped is untested: no hook LockRun
}
