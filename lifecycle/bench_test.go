package lifecycle_test

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
)

func inMemory(testing.TB) backend.Store { return newMemory(nil) }

// inFile opens a store in a file of its own.
func inFile(tb testing.TB) backend.Store {
	tb.Helper()
	store, err := sqlite.Open(context.Background(), filepath.Join(tb.TempDir(), "runs.db"), sqlite.Options{CreateDirectory: true, SharedDirectory: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := store.Close(); err != nil {
			tb.Error(err)
		}
	})
	return store
}

// BenchmarkDrain is the engine's own cost on the memory backend: claim, execute a node that
// does nothing, commit. An operation is one run.
func BenchmarkDrain(b *testing.B) {
	for _, bench := range []struct {
		name, graph string
		open        func(testing.TB) backend.Store
	}{
		{"one node", single, inMemory},
		{"five node chain", chain(5), inMemory},
		{"one node in a file", single, inFile},
		{"five node chain in a file", chain(5), inFile},
	} {
		b.Run(bench.name, func(b *testing.B) {
			e := newEngine(b, bench.open(b), options{Concurrency: 100}, act("work", func(context.Context) error { return nil }))
			ref := publish(b, &e.Client, bench.graph)
			startAll(b, e, ref, b.N)
			b.ReportAllocs()
			b.ResetTimer()
			d := drain(b, e)
			b.StopTimer()
			if d.Claims < b.N {
				b.Fatalf("%d runs claimed, want %d", d.Claims, b.N)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
		})
	}
}

// startAll starts many runs from many goroutines, so that a store that groups does.
func startAll(tb testing.TB, e *lifecycle.Engine, ref graph.Ref, n int) {
	tb.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := e.Start(context.Background(), ref, nil, lifecycle.StartOptions{}); err != nil {
					tb.Error(err)
				}
			}
		})
	}
	all.Wait()
}
