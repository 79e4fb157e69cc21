package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// chain is a graph of n nodes, one after the other.
func chain(n int) string {
	var b strings.Builder
	b.WriteString("id: chain\nnodes:\n")
	for i := range n {
		fmt.Fprintf(&b, "  n%d: {use: work}\n", i)
	}
	b.WriteString("edges:\n  in: {from: $start, to: n0}\n")
	for i := range n - 1 {
		fmt.Fprintf(&b, "  e%d: {from: n%d, to: n%d}\n", i, i, i+1)
	}
	fmt.Fprintf(&b, "  out: {from: n%d, to: $finish}\n", n-1)
	return b.String()
}

func TestDrainDrivesRunsToTheirEnd(t *testing.T) {
	type in struct{ A, B int }
	type out struct {
		Sum int `json:"sum"`
	}
	e := newEngine(t, newMemory(nil), options{},
		node.Of("add", 1, func(_ context.Context, i in) (out, error) { return out{i.A + i.B}, nil }))
	ref := publish(t, &e.Client, `
id: add
inputs: {a: {schema: {type: integer}, required: true}, b: {schema: {type: integer}, required: true}}
fields: {sum: {schema: {type: integer}}}
nodes: {add: {use: add, reads: {A: a, B: b}}}
edges: {in: {from: $start, to: add}, out: {from: add, to: $finish}}
outputs: {total: {from: sum}}
`)
	r := start(t, &e.Client, ref, map[string]int{"a": 2, "b": 3}, lifecycle.StartOptions{})
	d := drain(t, e)
	if d.Claims != 1 || d.Commits != 1 || !d.Next.IsZero() {
		t.Errorf("drained %+v, want one claim and one commit", d)
	}
	got, err := e.Await(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, got, run.Done)
	if string(got.Output) != `{"total":5}` {
		t.Errorf("output %s", got.Output)
	}
}
