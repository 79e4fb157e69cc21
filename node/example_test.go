package node_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// once runs one attempt of the only node of a graph, as an engine would.
func once(types *node.Registry, document string, call node.Call) {
	doc, err := graph.ParseYAML([]byte(document))
	if err != nil {
		fmt.Println(err)
		return
	}
	compiled, err := graph.Publish(doc, types)
	if err != nil {
		fmt.Println(err)
		return
	}
	prepared, err := types.Prepare(compiled, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	call.Node = compiled.Nodes()[0].ID
	for _, b := range compiled.Nodes()[0].Writes {
		call.Writes = append(call.Writes, b.Name)
	}
	result, err := prepared.Run(context.Background(), &call)
	if err != nil {
		fmt.Println(err)
		return
	}
	show(result)
}

func show(r run.Result) {
	switch f, failed := r.Failure(); {
	case failed:
		fmt.Println(r.Kind(), f.Code, f.Message)
	case r.Kind() == run.ResultCompleted:
		update := r.Update()
		if update == nil {
			update = map[string]value.Value{}
		}
		raw, _ := json.Marshal(update)
		fmt.Println(r.Kind(), string(raw))
	case r.Kind() == run.ResultAsked:
		fmt.Println(r.Kind(), string(r.Question().Prompt))
	case r.Kind() == run.ResultSnoozed:
		fmt.Println(r.Kind(), r.Until().Format(time.RFC3339))
	default:
		fmt.Println(r.Kind(), r.Reason())
	}
}

const orderGraph = `
id: order
inputs: {card: {schema: {type: string}}, amount: {schema: {type: integer}}}
fields: {receipt: {schema: {type: string}}}
nodes: {charge: {use: charge}}
edges: {in: {from: $start, to: charge}, out: {from: charge, to: $finish}}
outputs: {receipt: {from: receipt}}
`

// A node type is a function: what it reads and writes are the fields of its types.
func ExampleOf() {
	type Charge struct {
		Card   string `json:"card"`
		Amount int64  `json:"amount"`
	}
	type Receipt struct {
		Receipt string `json:"receipt"`
	}
	nodes := node.NewRegistry().Add(node.Of("charge", 1, func(_ context.Context, in Charge) (Receipt, error) {
		if in.Amount <= 0 {
			return Receipt{}, node.Permanent(errors.New("nothing to charge"))
		}
		return Receipt{Receipt: fmt.Sprintf("%d on %s", in.Amount, in.Card)}, nil
	}))

	once(nodes, orderGraph, node.Call{Reads: map[string]value.Value{"card": value.Value(`"4242"`), "amount": value.Value("1999")}})
	once(nodes, orderGraph, node.Call{Reads: map[string]value.Value{"card": value.Value(`"4242"`), "amount": value.Value("0")}})
	// Output:
	// completed {"receipt":"1999 on 4242"}
	// permanent node_error nothing to charge
}

// Version 2 renamed a member of the config. Graphs that were published for version 1
// still run.
func ExampleConfigured() {
	type Out struct {
		Receipt string `json:"receipt"`
	}
	type V1 struct {
		Max int `json:"max"`
	}
	type V2 struct {
		Limit int `json:"limit"`
	}
	before := node.NewRegistry().Add(node.Configured("charge", 1, func(_ context.Context, c V1, _ struct{}) (Out, error) {
		return Out{Receipt: fmt.Sprint("v1, at most ", c.Max)}, nil
	}))
	now := node.NewRegistry().Add(node.Configured("charge", 2, func(_ context.Context, c V2, _ struct{}) (Out, error) {
		return Out{Receipt: fmt.Sprint("v2, at most ", c.Limit)}, nil
	}, node.Accepts(1, func(config value.Value) (value.Value, error) {
		var old V1
		if err := json.Unmarshal(config, &old); err != nil {
			return nil, err
		}
		return json.Marshal(V2{Limit: old.Max})
	})))

	doc, err := graph.ParseYAML([]byte(`
id: order
fields: {receipt: {schema: {type: string}}}
nodes: {charge: {use: charge, config: {max: 100}}}
edges: {in: {from: $start, to: charge}, out: {from: charge, to: $finish}}
outputs: {receipt: {from: receipt}}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	published, err := graph.Publish(doc, before)
	if err != nil {
		fmt.Println(err)
		return
	}
	prepared, err := now.Prepare(published, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := prepared.Run(context.Background(), &node.Call{Node: "charge", Writes: []string{"receipt"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	show(result)
	// Output: completed {"receipt":"v2, at most 100"}
}

// A node asks, and runs again when there is an answer.
func ExampleAsk() {
	type Out struct {
		Receipt string `json:"receipt"`
	}
	nodes := node.NewRegistry().Add(node.Of("charge", 1, func(ctx context.Context, _ struct{}) (Out, error) {
		approved, ok, err := node.Answered[bool](ctx, "")
		if err != nil || !ok {
			return Out{}, cmp.Or(err, node.Ask(node.Question{Prompt: "charge 19.99?", Schema: value.Value(`{"type":"boolean"}`)}))
		}
		return Out{Receipt: fmt.Sprint("approved: ", approved)}, nil
	}))

	once(nodes, orderGraph, node.Call{})
	once(nodes, orderGraph, node.Call{Answers: []run.Answer{{Interrupt: "r:1:charge", Value: value.Value("true")}}})
	// Output:
	// asked "charge 19.99?"
	// completed {"receipt":"approved: true"}
}

// A node waits a day, and goes on. It runs from its beginning both times, so it counts from
// when its task was planned, and asks the clock whether it has waited.
func ExampleSnooze() {
	type Out struct {
		Receipt string `json:"receipt"`
	}
	nodes := node.NewRegistry().Add(node.Of("charge", 1, func(ctx context.Context, _ struct{}) (Out, error) {
		call, _ := node.FromContext(ctx)
		if until := call.PlannedAt.Add(24 * time.Hour); node.Now(ctx).Before(until) {
			return Out{}, node.Snooze(until)
		}
		return Out{Receipt: "after a day"}, nil
	}))
	planned := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	for _, now := range []time.Time{planned, planned.Add(24 * time.Hour)} {
		once(nodes, orderGraph, node.Call{PlannedAt: planned, Now: func() time.Time { return now }})
	}
	// Output:
	// snoozed 2030-01-03T12:00:00Z
	// completed {"receipt":"after a day"}
}

// A node that waits for another system looks again later. Nothing is held meanwhile,
// and no attempt is used up.
func ExampleSnooze_until() {
	settled := false
	nodes := node.NewRegistry().Add(node.Of("charge", 1, func(ctx context.Context, _ struct{}) (struct{}, error) {
		if !settled {
			return struct{}{}, node.Snooze(node.Now(ctx).Add(time.Hour))
		}
		return struct{}{}, nil
	}))
	clock := func() time.Time { return time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC) }

	once(nodes, orderGraph, node.Call{Now: clock})
	settled = true
	once(nodes, orderGraph, node.Call{Now: clock})
	// Output:
	// snoozed 2030-01-02T13:00:00Z
	// completed {}
}

// A node with nothing to do says why.
func ExampleSkip() {
	nodes := node.NewRegistry().Add(node.Of("charge", 1, func(_ context.Context, in struct {
		Amount int `json:"amount"`
	},
	) (struct{}, error) {
		if in.Amount == 0 {
			return struct{}{}, node.Skip("the order is free")
		}
		return struct{}{}, nil
	}))

	once(nodes, orderGraph, node.Call{Reads: map[string]value.Value{"amount": value.Value("0")}})
	// Output: skipped the order is free
}

// The idempotency key is the same for every attempt: what receives it can tell a
// repetition from a second order.
func ExampleIdempotencyKey() {
	charged := map[string]bool{}
	nodes := node.NewRegistry().Add(node.Of("charge", 1, func(ctx context.Context, _ struct{}) (struct{}, error) {
		key := node.IdempotencyKey(ctx)
		if charged[key] {
			return struct{}{}, node.Skip("charged already, under " + key)
		}
		charged[key] = true
		return struct{}{}, errors.New("the connection was lost")
	}))

	for attempt := range 2 {
		once(nodes, orderGraph, node.Call{Attempt: attempt + 1, IdempotencyKey: "r1:1:charge"})
	}
	// Output:
	// retry node_error the connection was lost
	// skipped charged already, under r1:1:charge
}

// A manifest lets graphs be checked where the code is not.
func ExampleRegistry_Manifest() {
	type Charge struct {
		Card string `json:"card"`
	}
	nodes := node.NewRegistry().Add(
		node.Of("charge", 2, func(context.Context, Charge) (struct{}, error) { return struct{}{}, nil }, node.Timeout(30*time.Second)),
	)
	manifest, err := json.MarshalIndent(nodes.Manifest(), "", "  ")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(manifest))
	// Output:
	// {
	//   "format": 1,
	//   "nodes": [
	//     {
	//       "name": "charge",
	//       "version": 2,
	//       "reads": {
	//         "card": {
	//           "schema": {
	//             "type": "string"
	//           },
	//           "required": true
	//         }
	//       },
	//       "max_timeout": "30s"
	//     }
	//   ]
	// }
}
