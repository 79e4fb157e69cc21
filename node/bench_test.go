package node_test

import (
	"context"
	"testing"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// BenchmarkAttempt is what a typed node costs beside its own work.
func BenchmarkAttempt(b *testing.B) {
	type charge struct {
		Card   string `json:"card"`
		Amount int64  `json:"amount"`
	}
	type receipt struct {
		ID string `json:"id"`
	}
	r := node.NewRegistry().Add(node.Of("t", 1, func(context.Context, charge) (receipt, error) { return receipt{"x"}, nil }))
	c, err := graph.Publish(oneNode("t", 0, "", []string{"card", "amount"}, []string{"id"}), r)
	if err != nil {
		b.Fatal(err)
	}
	p, err := r.Prepare(c, 0)
	if err != nil {
		b.Fatal(err)
	}
	call := &node.Call{
		Node: "n", Writes: []string{"id"},
		Reads: map[string]value.Value{"card": value.Value(`"4242"`), "amount": value.Value("1999")},
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.RunHere(context.Background(), call, func(run.Result, error) {}); err != nil {
			b.Fatal(err)
		}
	}
}
