package postgres_test

import (
	"testing"

	"github.com/belay-run/belay/proptest"
)

// TestCounterexamples: the histories that went wrong on some store, on one store, on several on one schema, and on
// several processes.
func TestCounterexamples(t *testing.T) {
	t.Parallel()
	a := direct(t)
	for name, open := range map[string]proptest.Opener{"one": opener(t, a), "several": severalOpener(t, a), "processes": everywhereOpener(t, a)} {
		t.Run(name, func(t *testing.T) { proptest.Counterexamples(t, open) })
	}
}
