package lifecycle_test

import (
	"context"
	"testing"

	"github.com/belay-run/belay/lifecycle"
)

// BenchmarkDrain is the engine's own cost on the memory backend: claim, execute a node that
// does nothing, commit. An operation is one run.
func BenchmarkDrain(b *testing.B) {
	for _, bench := range []struct{ name, graph string }{
		{"one node", single},
		{"five node chain", chain(5)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			e := newEngine(b, newMemory(nil), options{Concurrency: 100}, act("work", func(context.Context) error { return nil }))
			ref := publish(b, &e.Client, bench.graph)
			for range b.N {
				start(b, &e.Client, ref, nil, lifecycle.StartOptions{})
			}
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
