package memory_test

import (
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/proptest"
)

// open makes a store whose clock can be set.
func open(t proptest.T) proptest.Opened {
	var mu sync.Mutex
	var fixed time.Time
	store := memory.New(memory.Options{Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		if fixed.IsZero() {
			return time.Now()
		}
		return fixed
	}})
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return proptest.Opened{
		Store: store,
		Hooks: proptest.Hooks{
			WriteDocument: store.WriteDocument,
			WriteEvent:    store.WriteEvent,
			WriteGraph:    store.WriteGraph,
			LockRun:       store.LockRun,
			SetClock: func(now time.Time) {
				mu.Lock()
				defer mu.Unlock()
				fixed = now
			},
		},
	}
}

func TestConformance(t *testing.T) {
	proptest.Conformance(t, open, proptest.Options{})
}

func TestRandomHistories(t *testing.T) {
	proptest.Check(t, open, proptest.Options{Rounds: 1})
}

func TestLinearizable(t *testing.T) {
	proptest.Linearizable(t, open, proptest.Options{})
}

func TestInterleave(t *testing.T) {
	proptest.Interleave(t, func(t proptest.T, yield func(point string)) proptest.Opened {
		store := memory.New(memory.Options{Yield: yield})
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Errorf("closing: %v", err)
			}
		})
		return proptest.Opened{Store: store}
	}, proptest.Options{Depth: 1})
}
