package node_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/value"
)

// Middleware wraps every attempt of every node: here one that keeps a record, and one that admits
// only runs of a known tenant. An engine takes them as Config.Middleware.
func ExampleMiddleware() {
	record := func(next node.Func) node.Func {
		return func(ctx context.Context, call *node.Call) (map[string]value.Value, error) {
			update, err := next(ctx, call)
			fmt.Printf("%s %d: %v\n", call.Use, call.Attempt, node.Outcome(err))
			return update, err
		}
	}
	admit := func(next node.Func) node.Func {
		return func(ctx context.Context, call *node.Call) (map[string]value.Value, error) {
			if call.Tenant != "acme" {
				return nil, node.Permanent(errors.New("this tenant may not charge"))
			}
			return next(ctx, call)
		}
	}
	nodes := node.NewRegistry().Add(node.Of("charge", 1, func(context.Context, struct{}) (struct{}, error) {
		return struct{}{}, nil
	}))
	doc, err := graph.ParseYAML([]byte(orderGraph))
	if err != nil {
		fmt.Println(err)
		return
	}
	compiled, err := graph.Publish(doc, nodes)
	if err != nil {
		fmt.Println(err)
		return
	}
	prepared, err := nodes.Prepare(compiled, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	prepared = prepared.Wrap(record, admit) // the first is outermost
	for _, tenant := range []string{"acme", "globex"} {
		result, err := prepared.Run(context.Background(), &node.Call{Node: "charge", Use: "charge", Attempt: 1, Tenant: tenant})
		if err != nil {
			fmt.Println(err)
			return
		}
		show(result)
	}
	// Output:
	// charge 1: completed
	// completed {}
	// charge 1: permanent
	// permanent node_error this tenant may not charge
}

// Chain makes one middleware of several, the first outermost.
func ExampleChain() {
	say := func(what string) node.Middleware {
		return func(next node.Func) node.Func {
			return func(ctx context.Context, call *node.Call) (map[string]value.Value, error) {
				fmt.Println(what)
				return next(ctx, call)
			}
		}
	}
	attempt := node.Chain(say("first"), say("second"))(func(context.Context, *node.Call) (map[string]value.Value, error) {
		fmt.Println("the node")
		return nil, nil
	})
	if _, err := attempt(context.Background(), &node.Call{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// first
	// second
	// the node
}

// Outcome says what an attempt comes to that answers an error.
func ExampleOutcome() {
	fmt.Println(node.Outcome(nil))
	fmt.Println(node.Outcome(errors.New("the connection was lost")))
	fmt.Println(node.Outcome(node.Permanent(errors.New("no such card"))))
	fmt.Println(node.Outcome(node.Ask(node.Question{Prompt: "charge it?"})))
	// Output:
	// completed
	// retry
	// permanent
	// asked
}
