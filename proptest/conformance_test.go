package proptest_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/proptest"
)

// open makes an empty memory store with a clock that a case may set.
func open(t proptest.T) proptest.Opened {
	var set atomic.Pointer[time.Time]
	store := memory.New(memory.Options{Now: func() time.Time {
		if now := set.Load(); now != nil {
			return *now
		}
		return time.Now()
	}})
	t.Cleanup(func() { _ = store.Close() })
	return proptest.Opened{
		Store: store,
		Hooks: proptest.Hooks{SetClock: func(now time.Time) { set.Store(&now) }},
	}
}

func TestMemoryConforms(t *testing.T) {
	proptest.Conformance(t, open, proptest.Options{})
}
