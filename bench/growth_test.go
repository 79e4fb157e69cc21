package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
)

// fan is a graph of so many nodes beside each other.
func fan(nodes int) string {
	var b strings.Builder
	b.WriteString("id: fan\ninputs: {n: {schema: {type: integer}, required: true}, payload: {schema: {type: string}, required: true}}\nnodes:\n")
	for i := range nodes {
		fmt.Fprintf(&b, "  step%d: {use: work, reads: {n: n}}\n", i)
	}
	b.WriteString("edges:\n")
	for i := range nodes {
		fmt.Fprintf(&b, "  in%[1]d: {from: $start, to: step%[1]d}\n  out%[1]d: {from: step%[1]d, to: $finish}\n", i)
	}
	return b.String()
}

// BenchmarkGrowth tells how the cost of a run grows with its document, with the nodes beside each other, with the
// nodes one after the other, whose events are its history, and with the finished runs in the table: a run
// drained from a backlog, in microseconds of processors, here and in the server.
//
//	go test -run '^$' -bench Growth -benchtime 1x
func BenchmarkGrowth(b *testing.B) {
	e := &env{server: &server{}, dir: b.TempDir()}
	defer e.server.stop()
	for _, c := range []struct {
		name                    string
		runs, payload, finished int
		graph                   string
		executed                int
		alsoInMemory            bool
	}{
		{"document/1KB", 4000, 1 << 10, 0, chain(1), 1, true},
		{"document/4KB", 4000, 4 << 10, 0, chain(1), 1, true},
		{"document/16KB", 2000, 16 << 10, 0, chain(1), 1, true},
		{"document/64KB", 500, 64 << 10, 0, chain(1), 1, true},
		{"document/256KB", 200, 256 << 10, 0, chain(1), 1, true},
		{"beside/1", 4000, 1 << 10, 0, fan(1), 1, true},
		{"beside/4", 2000, 1 << 10, 0, fan(4), 4, true},
		{"beside/16", 1000, 1 << 10, 0, fan(16), 16, true},
		{"beside/64", 300, 1 << 10, 0, fan(64), 64, true},
		{"after/5", 2000, 1 << 10, 0, chain(5), 5, true},
		{"after/25", 500, 1 << 10, 0, chain(25), 25, true},
		{"after/90", 200, 1 << 10, 0, chain(90), 90, true},
		{"finished/20000", 4000, 1 << 10, 20_000, chain(1), 1, false},
		{"finished/200000", 4000, 1 << 10, 200_000, chain(1), 1, false},
	} {
		b.Run("postgres/"+c.name, func(b *testing.B) {
			table := claimTable{schema: e.name("growth")}
			var done func()
			var err error
			if table.store, table.pool, done, err = inPostgres(b.Context(), e, postgres.Options{Schema: table.schema}); err != nil {
				b.Fatal(err)
			}
			defer done()
			if c.finished > 0 {
				one := growing(b, table.store, c.graph, 1)
				drainAll(b, one, 1, text(c.payload))
				if _, err := table.pool.Exec(b.Context(), table.copies(), c.finished); err != nil {
					b.Fatal(err)
				}
			}
			grow(b, e, table.store, c.graph, c.runs, c.payload, c.executed, func() error { return settle(b.Context(), table.pool) })
		})
		if c.alsoInMemory {
			b.Run("memory/"+c.name, func(b *testing.B) {
				store := memory.New(memory.Options{})
				defer store.Close()
				grow(b, e, store, c.graph, c.runs, c.payload, c.executed, func() error { return nil })
			})
		}
	}
}

// growing is an engine with a graph, whose node counts.
func growing(b *testing.B, store backend.Store, text string, n int) *belayRuns {
	b.Helper()
	r := &belayRuns{seen: newSeen(n), nodes: 1}
	types := node.NewRegistry()
	types.Add(node.Of("work", 1, func(_ context.Context, in numbered) (struct{}, error) {
		r.seen.add(in.N)
		return struct{}{}, nil
	}))
	doc, err := graph.ParseYAML([]byte(text))
	if err == nil {
		r.engine, err = belay.New(belay.Config{Backend: store, Nodes: types, Concurrency: 100, Logger: quiet()})
	}
	if err == nil {
		r.ref, err = r.engine.Publish(b.Context(), doc)
	}
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func drainAll(b *testing.B, r *belayRuns, n int, payload string) {
	b.Helper()
	if err := r.startAll(b.Context(), n, payload); err != nil {
		b.Fatal(err)
	}
	if err := r.drain(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func grow(b *testing.B, e *env, store backend.Store, graph string, n, payload, executed int, settled func() error) {
	r := growing(b, store, graph, n)
	drainAll(b, r, min(n, 200), text(payload)) // so that statements are planned and buffers have grown
	var spent cost
	for b.Loop() {
		r.seen = newSeen(n)
		err := r.startAll(b.Context(), n, text(payload))
		if err == nil {
			err = settled()
		}
		if err == nil {
			spent, err = e.measured(func() error { return r.drain(b.Context()) })
		}
		if err == nil {
			err = r.seen.each(int32(executed))
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for metric, v := range spent.per(n, "run") {
		b.ReportMetric(v, strings.ReplaceAll(metric, " ", "-"))
	}
	b.ReportMetric(0, "ns/op")
}
