package proptest_test

import (
	"fmt"
	"strings"

	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/proptest"
)

// Check makes random histories and holds the store against a model of the contract. What went on, and
// which corners were met, is the log's; here it says only that it is there.
func ExampleCheck() {
	var said string
	passed := proptest.Attempt("memory", nil, func(t proptest.T) {
		proptest.Check(t, opened, proptest.Options{Rounds: 1, Log: func(text string) { said = text }})
	})
	fmt.Println("passed:", passed)
	fmt.Println("tells of corners:", strings.Contains(said, "corners"))
	// Output:
	// passed: true
	// tells of corners: true
}

// Interleave lets calls take turns at the points where the store yields: as they are drawn, and then in
// every order that a small scope has.
func ExampleInterleave() {
	open := func(t proptest.T, yield func(point string)) proptest.Opened {
		store := memory.New(memory.Options{Yield: yield})
		t.Cleanup(func() { _ = store.Close() })
		return proptest.Opened{Store: store}
	}
	var said strings.Builder
	passed := proptest.Attempt("memory", nil, func(t proptest.T) {
		proptest.Interleave(t, open, proptest.Options{Depth: 1, Log: func(text string) { said.WriteString(text) }})
	})
	fmt.Println("passed:", passed)
	fmt.Println("explored:", strings.Contains(said.String(), "every interleaving of 1 calls of 2 workers on 2 runs"))
	// Output:
	// passed: true
	// explored: true
}

// Verify is all of it without a test framework, as a command of yours may offer it.
func ExampleVerify() {
	v := proptest.Verify(opened, 2, proptest.Options{Only: []string{"K9"}, Rounds: 1, Histories: 1})
	fmt.Println("passed:", v.Passed())
	fmt.Println("conformance", v.Conformance.Passed())
	for _, s := range v.Suites {
		fmt.Println(s.Name, s.Passed)
	}
	// Output:
	// passed: true
	// conformance true
	// check true
	// linearizable true
}
