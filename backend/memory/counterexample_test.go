package memory_test

import (
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/belay-run/belay/proptest"
)

// TestCounterexamples: the histories that went wrong on some store come out as they are written down; with -rewrite
// the files say what this one answers.
func TestCounterexamples(t *testing.T) {
	datadriven.Walk(t, "../../proptest/testdata/counterexamples", func(t *testing.T, path string) {
		p := proptest.NewPlayer(t, open(t))
		datadriven.RunTest(t, path, func(_ *testing.T, d *datadriven.TestData) string { return p.Play(d.Input) })
	})
}
