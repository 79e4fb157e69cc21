package proptest_test

import (
	"testing"

	"github.com/belay-run/belay/proptest"
)

func TestMemoryKeepsToTheModel(t *testing.T) {
	proptest.Check(t, open, proptest.Options{})
}

func FuzzMemory(f *testing.F) { proptest.Fuzz(f, open, proptest.Options{}) }
