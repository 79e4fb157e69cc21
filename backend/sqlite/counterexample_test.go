package sqlite_test

import (
	"testing"

	"github.com/belay-run/belay/proptest"
)

// TestCounterexamples: the histories that went wrong on some store, on one store, on several on one file, and on
// several processes.
func TestCounterexamples(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]proptest.Opener{"one": open, "handles": openHandles, "processes": openEverywhere} {
		t.Run(name, func(t *testing.T) { proptest.Counterexamples(t, open) })
	}
}
