package graph_test

import (
	"fmt"
	"os"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

const text = `
id: greeting
inputs:
  names: {schema: {type: array, items: {type: string}}, required: true}
fields:
  letter: {schema: {type: string}}
nodes:
  write: {use: letter, retry: {max_attempts: 3}}
edges:
  start: {from: $start, to: write, when: "len(state.names) > 0"}
  done: {from: write, to: $finish}
outputs:
  letter: {from: letter}
`

// catalog says what the graph's nodes are; a node.Registry is one too.
var catalog = &graph.Manifest{Format: graph.ManifestFormat, Nodes: []graph.NodeType{{
	Name: "letter", Version: 2,
	Config: value.Value(`{"type":"object","properties":{"tone":{"default":"kind"}}}`),
	Reads:  map[string]graph.Port{"names": {Required: true}},
	Writes: map[string]graph.Port{"letter": {Schema: value.Value(`{"type":"string"}`)}},
}}}

func ExampleParse() {
	_, err := graph.Parse([]byte(`{"id": "g", "nodes": {"a": {"use": "x", "timeout": "soon"}}, "egdes": {}}`))
	fmt.Println(err)
	// Output:
	// belay: the graph document has 2 errors:
	//   /egdes: error: A graph document has no member "egdes": use $defs, edges, fields, id, inputs, nodes, outputs or policies. (unknown_member)
	//   /nodes/a/timeout: error: "soon" is not a duration: write one like "30s" or "1m30s". (invalid_value)
}

func ExamplePublish() {
	doc, err := graph.ParseYAML([]byte(text))
	if err != nil {
		fmt.Println(err)
		return
	}
	compiled, err := graph.Publish(doc, catalog)
	if err != nil {
		fmt.Println(err)
		return
	}
	write := compiled.Node("write")
	fmt.Println(write.Version, string(write.Config), write.Reads, write.Writes)

	stored, err := graph.Load(compiled.Ref(), compiled.Bytes())
	fmt.Println(stored.Ref() == compiled.Ref(), err)
	// Output:
	// 2 {"tone":"kind"} [{names names}] [{letter letter}]
	// true <nil>
}

func ExampleCheckYAML() {
	found := graph.CheckYAML([]byte(`
id: greeting
nodes: {write: {use: lettre, timeout: 30}}
edges: {start: {from: $start, to: wirte, when: "state.names"}}
`), catalog)
	for _, d := range found.Errors() {
		fmt.Println(d.Path, d.Code)
	}
	// Output:
	// /edges no_entry_point
	// /edges/start/to unknown_edge_target
	// /edges/start/when unknown_guard_field
	// /nodes/write/timeout wrong_type
	// /nodes/write/use unknown_node_type
}

func ExampleCompiled_Mermaid() {
	doc, err := graph.ParseYAML([]byte(text))
	if err != nil {
		fmt.Println(err)
		return
	}
	compiled, err := graph.Publish(doc, catalog)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprint(os.Stdout, compiled.Mermaid(&graph.Progress{
		Nodes: map[string]graph.Activity{"write": graph.Active},
		Edges: map[string]int64{"start": 1},
	}))
	// Output:
	// flowchart TD
	//   start(["start"])
	//   n0["write<br/>letter"]
	//   finish(["finish"])
	//   n0 --> finish
	//   start -->|"len(state.names) #gt; 0"| n0
	//   classDef active fill:#d6e6ff,stroke:#1f5fbf,color:#1b1b1b
	//   class n0 active
	//   linkStyle 1 stroke:#2b7a3d,stroke-width:2px
}

func ExampleCompileExpression() {
	e, err := graph.CompileExpression(`map(sortBy(items, .price), .name)`, graph.Variables{"items": nil})
	if err != nil {
		fmt.Println(err)
		return
	}
	cheapest, err := e.Eval(map[string]value.Value{"items": value.Value(`[{"name":"pear","price":2.5},{"name":"plum","price":1}]`)})
	fmt.Println(string(cheapest), err)
	// Output:
	// ["plum","pear"] <nil>
}
