package belay_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// greeting is a graph that greets somebody.
const greeting = `
id: greeting
inputs: {name: {schema: {type: string}, required: true}}
fields: {text: {schema: {type: string}}}
nodes: {greet: {use: greet}}
edges: {in: {from: $start, to: greet}, out: {from: greet, to: $finish}}
outputs: {text: {from: text}}
`

type person struct {
	Name string `json:"name"`
}

type message struct {
	Text string `json:"text"`
}

func greet(_ context.Context, p person) (message, error) {
	return message{"Hello, " + p.Name + "!"}, nil
}

// Embed belay in a service: nodes are typed functions, graphs are data, and the backend is one
// line.
func Example() {
	ctx := context.Background()
	nodes := node.NewRegistry().Add(node.Of("greet", 1, greet))
	engine, err := belay.New(belay.Config{Backend: memory.New(memory.Options{}), Nodes: nodes})
	if err != nil {
		log.Fatal(err)
	}

	doc, err := graph.ParseYAML([]byte(greeting)) // or belay.ReadGraph("greeting.yaml")
	if err != nil {
		log.Fatal(err)
	}
	ref, err := engine.Publish(ctx, doc)
	if err != nil {
		log.Fatal(err)
	}
	r, err := engine.Start(ctx, ref, person{"Ada"}, belay.StartOptions{Key: "greet-ada"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := engine.Drain(ctx, belay.DrainOptions{}); err != nil { // a service calls Run
		log.Fatal(err)
	}
	r, err = engine.Await(ctx, r.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Status, string(r.Output))
	// Output: done {"text":"Hello, Ada!"}
}

// A service drives its runs for as long as it lives. Shutdown, or the end of the context given to
// Run, lets running nodes reach a commit and hands the rest on to other processes.
func ExampleEngine_run() {
	ctx := context.Background()
	engine, err := belay.New(belay.Config{
		Backend: memory.New(memory.Options{}),
		Nodes:   node.NewRegistry().Add(node.Of("greet", 1, greet)),
	})
	if err != nil {
		log.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- engine.Run(ctx) }()

	doc, err := graph.ParseYAML([]byte(greeting))
	if err != nil {
		log.Fatal(err)
	}
	ref, err := engine.Publish(ctx, doc)
	if err != nil {
		log.Fatal(err)
	}
	r, err := engine.Start(ctx, ref, person{"Ada"}, belay.StartOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if r, err = engine.Await(ctx, r.ID); err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Status, string(r.Output))

	if err := engine.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-over)
	// Output:
	// done {"text":"Hello, Ada!"}
	// <nil>
}

// A node may ask a person. The run then waits, holding nothing, until somebody resolves the
// interrupt; the node runs again and is told the answer.
func Example_interrupt() {
	ctx := context.Background()
	type none struct{}
	type verdict struct {
		Approved bool `json:"approved"`
	}
	approve := node.Of("approve", 1, func(ctx context.Context, _ none) (verdict, error) {
		approved, answered, err := node.Answered[bool](ctx, "")
		if err != nil {
			return verdict{}, err
		}
		if !answered {
			return verdict{}, node.Ask(node.Question{Prompt: "Ship it?"})
		}
		return verdict{approved}, nil
	})
	engine, err := belay.New(belay.Config{
		Backend: memory.New(memory.Options{}),
		Nodes:   node.NewRegistry().Add(approve),
	})
	if err != nil {
		log.Fatal(err)
	}
	ref, err := engine.Publish(ctx, &belay.Graph{
		ID:     "release",
		Fields: map[string]graph.Field{"approved": {Schema: []byte(`{"type": "boolean"}`)}},
		Nodes:  map[string]graph.Node{"approve": {Use: "approve"}},
		Edges: map[string]graph.Edge{
			"in":  {From: graph.Sources{graph.Start}, To: "approve"},
			"out": {From: graph.Sources{"approve"}, To: graph.Finish},
		},
		Outputs: map[string]graph.Output{"approved": {From: "approved"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	r, err := engine.Start(ctx, ref, nil, belay.StartOptions{})
	if err != nil {
		log.Fatal(err)
	}
	drain := func() {
		if _, err := engine.Drain(ctx, belay.DrainOptions{}); err != nil {
			log.Fatal(err)
		}
		if r, err = engine.Await(ctx, r.ID); err != nil {
			log.Fatal(err)
		}
	}

	drain()
	question := r.OpenInterrupts()[0]
	fmt.Println(r.Status, string(question.Question))
	if r, err = engine.Resolve(ctx, r.ID, question.ID, true); err != nil {
		log.Fatal(err)
	}
	drain()
	fmt.Println(r.Status, string(r.Output))
	// Output:
	// waiting "Ship it?"
	// done {"approved":true}
}

// Each tenant has a client of its own, which sees its runs and graphs and nobody else's. One
// engine drives them all.
func Example_tenants() {
	ctx := context.Background()
	engine, err := belay.New(belay.Config{
		Backend: memory.New(memory.Options{}),
		Nodes:   node.NewRegistry().Add(node.Of("greet", 1, greet)),
	})
	if err != nil {
		log.Fatal(err)
	}
	doc, err := graph.ParseYAML([]byte(greeting))
	if err != nil {
		log.Fatal(err)
	}
	acme, other := engine.For("acme"), engine.For("other")
	ref, err := acme.Publish(ctx, doc)
	if err != nil {
		log.Fatal(err)
	}
	r, err := acme.Start(ctx, ref, person{"Acme"}, belay.StartOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := engine.Drain(ctx, belay.DrainOptions{}); err != nil {
		log.Fatal(err)
	}

	d, err := acme.Fetch(ctx, r.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Status == run.Done, string(d.Output))
	_, err = other.Fetch(ctx, r.ID)
	fmt.Println(errors.Is(err, belay.ErrNotFound))
	// Output:
	// true {"text":"Hello, Acme!"}
	// true
}
