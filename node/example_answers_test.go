package node_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// charging is a registry whose charge answers an error.
func charging(answer func(ctx context.Context) error, opts ...node.Option) *node.Registry {
	return node.NewRegistry().Add(node.Of("charge", 1, func(ctx context.Context, _ struct{}) (struct{}, error) {
		return struct{}{}, answer(ctx)
	}, opts...))
}

// An error that no attempt can cure fails the run at once, whatever the graph says of retries.
func ExamplePermanent() {
	once(charging(func(context.Context) error {
		return node.Permanent(errors.New("the card is stolen"))
	}), orderGraph, node.Call{})
	// Output: permanent node_error the card is stolen
}

// The other system says when to come again: the retry comes no earlier.
func ExampleRetryAfter() {
	nodes := charging(func(ctx context.Context) error {
		return node.RetryAfter(errors.New("429 too many requests"), node.Now(ctx).Add(time.Minute))
	})
	once(nodes, orderGraph, node.Call{})
	// Output: retry node_error 429 too many requests
}

// Details are stored with the failure, as JSON.
func ExampleWithDetails() {
	err := node.WithDetails(errors.New("refused"), map[string]any{"code": "insufficient_funds"})
	fmt.Println(err, node.Outcome(err))
	// Output: refused retry
}

// Answered reads the answer to a question; the node asks as long as there is none.
func ExampleAnswered() {
	nodes := charging(func(ctx context.Context) error {
		limit, ok, err := node.Answered[int](ctx, "limit")
		if err != nil || !ok {
			return cmp.Or(err, node.Ask(node.Question{ID: "limit", Prompt: "up to which amount?"}))
		}
		return node.Skip(fmt.Sprint("up to ", limit))
	})
	once(nodes, orderGraph, node.Call{})
	once(nodes, orderGraph, node.Call{Answers: []run.Answer{{Interrupt: "limit", Value: value.Value("500")}}})
	// Output:
	// asked "up to which amount?"
	// skipped up to 500
}

// FromContext tells a node about the attempt that it is.
func ExampleFromContext() {
	nodes := charging(func(ctx context.Context) error {
		call, _ := node.FromContext(ctx)
		return node.Skip(fmt.Sprintf("run %s, attempt %d", call.Run, call.Attempt))
	})
	once(nodes, orderGraph, node.Call{Run: "r1", Attempt: 2})
	// Output: skipped run r1, attempt 2
}

// Now is the engine's clock: in a test it is the clock that the test moves.
func ExampleNow() {
	nodes := charging(func(ctx context.Context) error { return node.Skip("it is " + node.Now(ctx).Format(time.DateOnly)) })
	once(nodes, orderGraph, node.Call{Now: func() time.Time { return time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC) }})
	// Output: skipped it is 2030-01-02
}

// Timeout is the longest an attempt may take, and the timeout of nodes that state none.
func ExampleTimeout() {
	nodes := charging(func(context.Context) error { return nil }, node.Timeout(30*time.Second))
	contract, _ := nodes.NodeType("charge", 0)
	fmt.Println(contract.MaxTimeout)
	// Output: 30s
}

// Raw makes a node type by hand, over JSON values: here one that copies whatever the graph binds.
func ExampleRaw() {
	contract := graph.NodeType{Name: "charge", Version: 1, OpenReads: true, OpenWrites: true}
	shout := node.Raw(contract, func(site node.Site) (node.Func, error) {
		return func(_ context.Context, call *node.Call) (map[string]value.Value, error) {
			update := map[string]value.Value{}
			for _, name := range site.Writes {
				update[name] = value.Value(strings.ToUpper(string(call.Reads["card"])))
			}
			return update, nil
		}, nil
	})
	once(node.NewRegistry().Add(shout), `
id: order
inputs: {card: {schema: {type: string}}}
fields: {receipt: {schema: {type: string}}}
nodes: {charge: {use: charge, reads: {card: card}, writes: {receipt: receipt}}}
edges: {in: {from: $start, to: charge}, out: {from: charge, to: $finish}}
`, node.Call{Reads: map[string]value.Value{"card": value.Value(`"visa"`)}})
	// Output: completed {"receipt":"VISA"}
}

// Everything that is wrong with the types of a registry is told at once; an engine that is made
// with it refuses to begin.
func ExampleRegistry_Err() {
	nodes := node.NewRegistry().Add(
		node.Of("", 1, func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }),
		node.Of[struct{}, struct{}]("charge", 1, nil),
	)
	for _, line := range strings.Split(nodes.Err().Error(), "\n") {
		fmt.Println(strings.Contains(line, "node type"))
	}
	// Output:
	// true
	// true
}

// Prepare says whether a binary can run a graph, and if not, every reason.
func ExampleRegistry_Prepare() {
	doc, err := graph.ParseYAML([]byte(orderGraph))
	if err != nil {
		fmt.Println(err)
		return
	}
	compiled, err := graph.Publish(doc, charging(func(context.Context) error { return nil }))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = node.NewRegistry().Prepare(compiled, 0) // another binary
	var unable *node.IncompatibleError
	if errors.As(err, &unable) {
		for _, reason := range unable.Reasons {
			fmt.Println(reason.Node, reason.Code)
		}
	}
	// Output: charge unknown_node_type
}
