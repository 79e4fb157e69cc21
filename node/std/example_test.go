package std_test

import (
	"context"
	"fmt"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
	"github.com/belay-run/belay/value"
)

func ExampleRegister() {
	nodes := std.Register(node.NewRegistry())
	doc, err := graph.ParseYAML([]byte(`
id: greeting
inputs: {names: {schema: {type: array, items: {type: string}}, required: true}}
fields: {text: {schema: {type: string}}}
nodes:
  greet:
    use: set
    reads: {names: names}
    writes: {text: text}
    config: {values: {text: "hello ${names[0]} and ${len(names) - 1} more"}}
edges: {in: {from: $start, to: greet}, out: {from: greet, to: $finish}}
outputs: {text: {from: text}}
`))
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
	result, err := prepared.Run(context.Background(), &node.Call{
		Node: "greet", Reads: map[string]value.Value{"names": value.Value(`["Ann","Bob","Cid"]`)}, Writes: []string{"text"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(result.Update()["text"]))
	// Output: "hello Ann and 2 more"
}
