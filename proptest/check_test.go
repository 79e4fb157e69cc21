package proptest_test

import (
	"testing"

	"github.com/belay-run/belay/proptest"
)

func TestMemoryKeepsToTheModel(t *testing.T) {
	proptest.Check(t, open, proptest.Options{})
}
