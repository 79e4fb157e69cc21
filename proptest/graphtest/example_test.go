package graphtest_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/proptest/graphtest"
)

// A node that makes up a key of its own each time pays twice when its process dies at the wrong
// moment. In a test, pass t to Check; here the verdict is printed.
func ExampleCheck() {
	type receipt struct {
		Receipt string `json:"receipt"`
	}
	doc, err := graph.ParseYAML([]byte(`
id: pay
fields: {receipt: {schema: {type: string}}}
nodes: {pay: {use: pay, retry: {max_attempts: 3}}}
edges: {in: {from: $start, to: pay}, out: {from: pay, to: $finish}}
outputs: {receipt: {from: receipt}}
`))
	if err != nil {
		fmt.Println(err)
		return
	}

	// The payment provider that the node is given in a test.
	pay := func(ctx context.Context, key string, amount int) { graphtest.Effect(ctx, key, amount) }

	payments := 0
	forgetful := node.NewRegistry().Add(node.Of("pay", 1, func(ctx context.Context, _ struct{}) (receipt, error) {
		payments++
		pay(ctx, fmt.Sprint("payment ", payments), 42)
		return receipt{"paid"}, nil
	}))
	careful := node.NewRegistry().Add(node.Of("pay", 1, func(ctx context.Context, _ struct{}) (receipt, error) {
		pay(ctx, node.IdempotencyKey(ctx), 42)
		return receipt{"paid"}, nil
	}))

	for _, nodes := range []*node.Registry{forgetful, careful} {
		var said strings.Builder
		passed := proptest.Attempt("pay", func(format string, args ...any) { fmt.Fprintf(&said, format, args...) }, func(t proptest.T) {
			graphtest.Check(t, doc, nodes, graphtest.EffectsOnce, graphtest.Finishes)
		})
		verdict, _, _ := strings.Cut(said.String(), ". ")
		if passed {
			verdict = ""
		}
		fmt.Println(passed, verdict)
	}
	// Output:
	// false when the process dies before commit 1, node pay: task run:1:pay asked twice for 42, under the keys "payment 2" and "payment 3": the effect is made twice
	// true
}
