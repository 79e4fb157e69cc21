package backend_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/value"
)

// open makes a store out of one of the older shape.
func open(t proptest.T) proptest.Opened { return openApart(t, false) }

// openRepeating is open with transactions that do not succeed at once.
func openRepeating(t proptest.T) proptest.Opened { return openApart(t, true) }

func openApart(t proptest.T, twice bool) proptest.Opened {
	var set atomic.Pointer[time.Time]
	a := newApart(func() time.Time {
		if now := set.Load(); now != nil {
			return *now
		}
		return time.Now()
	})
	a.twice = twice
	store := backend.FromApart(a, value.Limits{})
	t.Cleanup(func() { _ = store.Close() })
	return proptest.Opened{
		Store: store,
		Hooks: proptest.Hooks{
			SetClock: func(now time.Time) { set.Store(&now) },
			WriteDocument: func(ctx context.Context, id string, raw []byte) error {
				return a.transact(ctx, func(tx *apartTx) error {
					r := tx.runs[id]
					r.raw = raw
					tx.runs[id] = r
					return nil
				})
			},
			WriteEvent: func(ctx context.Context, id string, seq int64, raw []byte) error {
				return a.transact(ctx, func(tx *apartTx) error {
					events := append([]apartEvent(nil), tx.events[id]...)
					for i := range events {
						if events[i].seq == seq {
							events[i].raw = raw
						}
					}
					tx.events[id] = events
					return nil
				})
			},
			WriteGraph: func(ctx context.Context, o backend.Owner, ref graph.Ref, raw []byte) error {
				return a.transact(ctx, func(tx *apartTx) error {
					g := apartGraph{o, ref.ID}
					versions := append([]apartVersion(nil), tx.graphs[g]...)
					for i := range versions {
						if versions[i].hash == ref.Hash {
							versions[i].raw = raw
						}
					}
					tx.graphs[g] = versions
					return nil
				})
			},
		},
	}
}

func TestF1AStoreOfTheOlderShapeConforms(t *testing.T) {
	proptest.Conformance(t, open, proptest.Options{})
}

func TestF1AStoreOfTheOlderShapeKeepsToTheModel(t *testing.T) {
	proptest.Check(t, open, proptest.Options{Rounds: 1})
}

func TestF1ATransactionsFunctionMayBeCalledAgain(t *testing.T) {
	proptest.Conformance(t, openRepeating, proptest.Options{Only: []string{"R1", "R2", "T1", "T2", "T3", "T5", "E1", "C1", "C3", "C9"}})
}
