package proptest_test

import (
	"fmt"
	"strings"

	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/proptest"
)

// opened opens an empty store for the kit; in a test of yours it opens your backend.
func opened(t proptest.T) proptest.Opened {
	store := memory.New(memory.Options{})
	t.Cleanup(func() { _ = store.Close() })
	return proptest.Opened{Store: store}
}

// Conformance proves clause by clause. In a test: proptest.Conformance(t, open, proptest.Options{}).
func ExampleConformance() {
	passed := proptest.Attempt("memory", nil, func(t proptest.T) {
		report := proptest.Conformance(t, opened, proptest.Options{Only: []string{"R2"}})
		for _, c := range report.Clauses() {
			fmt.Println(c.Clause, c.Result())
		}
	})
	fmt.Println("passed:", passed)
	// Output:
	// R2 passed
	// passed: true
}

// Cases lists what Conformance tries: each case begins with the clause that it proves.
func ExampleCases() {
	for _, c := range proptest.Cases() {
		if strings.HasPrefix(c.ID, "R2.") && strings.Contains(c.Says, "key") {
			fmt.Println("a case of clause R2 is about start keys")
			return
		}
	}
	// Output: a case of clause R2 is about start keys
}

// Linearizable lets goroutines at a store, and judges whether their histories could have happened one
// after the other.
func ExampleLinearizable() {
	passed := proptest.Attempt("memory", nil, func(t proptest.T) {
		proptest.Linearizable(t, opened, proptest.Options{Histories: 2})
	})
	fmt.Println("passed:", passed)
	// Output: passed: true
}
