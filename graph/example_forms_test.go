package graph_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

// published is a graph in YAML, published against the catalog of the examples.
func published(yaml string) *graph.Compiled {
	doc, err := graph.ParseYAML([]byte(yaml))
	if err != nil {
		panic(err)
	}
	compiled, err := graph.Publish(doc, catalog)
	if err != nil {
		panic(err)
	}
	return compiled
}

// A graph may be built in Go; its JSON is what Parse reads.
func ExampleDocument() {
	doc := &graph.Document{
		ID:    "greeting",
		Nodes: map[string]graph.Node{"write": {Use: "letter"}},
		Edges: map[string]graph.Edge{
			"start": {From: graph.Sources{graph.Start}, To: "write"},
			"done":  {From: graph.Sources{"write"}, To: graph.Finish},
		},
	}
	raw, err := json.Marshal(doc)
	fmt.Println(string(raw), err)
	again, err := graph.Parse(raw)
	fmt.Println(again.ID, err)
	// Output:
	// {"id":"greeting","nodes":{"write":{"use":"letter"}},"edges":{"done":{"from":"write","to":"$finish"},"start":{"from":"$start","to":"write"}}} <nil>
	// greeting <nil>
}

// YAML is for people: the graph is the same.
func ExampleParseYAML() {
	doc, err := graph.ParseYAML([]byte(`
id: greeting
nodes: {write: {use: letter, timeout: 30s}}   # a comment is allowed
edges: {start: {from: $start, to: write}}
`))
	fmt.Println(doc.Nodes["write"].Timeout, err)
	// Output: 30s <nil>
}

// Check says everything that is wrong with a document, at once.
func ExampleCheck() {
	found := graph.Check([]byte(`{"id": "g", "nodes": {"a": {"use": "letter"}}, "edges": {"e": {"from": "$start", "to": "b"}}}`), catalog)
	for _, d := range found {
		fmt.Println(d.Severity, d.Path, d.Code)
	}
	fmt.Println(len(found.Errors()), "errors,", len(found.Warnings()), "warnings")
	// Output:
	// error /edges no_entry_point
	// error /edges/e/to unknown_edge_target
	// error /nodes/a/reads/names missing_required_read
	// warning /nodes/a dead_end
	// 3 errors, 1 warnings
}

// A stored graph stands by itself: no catalog is needed to load it, and other bytes under its hash are
// refused.
func ExampleLoad() {
	compiled := published(text)
	loaded, err := graph.Load(compiled.Ref(), compiled.Bytes())
	fmt.Println(loaded.Ref() == compiled.Ref(), err)

	forged := strings.Replace(string(compiled.Bytes()), "kind", "rude", 1)
	_, err = graph.Load(compiled.Ref(), value.Value(forged))
	fmt.Println(errors.Is(err, graph.ErrDigest))
	// Output:
	// true <nil>
	// true
}

// A manifest is what a binary can run, as data: graphs are checked against it where the code is
// not.
func ExampleParseManifest() {
	manifest, err := graph.ParseManifest([]byte(`{"format": 1, "nodes": [{"name": "letter", "version": 3}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	newest, ok := manifest.NodeType("letter", 0)
	fmt.Println(newest.Version, ok)
	// Output: 3 true
}

// An edge is followed when its guard says so. Guards see the state, and what has changed.
func ExampleCompiledEdge_Eval() {
	compiled := published(text)
	start := compiled.EdgesFrom(graph.Start)[0]
	for _, names := range []string{`["Ada"]`, `[]`} {
		goes, err := start.Eval(state{"names": value.Value(names)})
		fmt.Println(goes, err)
	}
	// Output:
	// true <nil>
	// false <nil>
}

// state is a run's, in which everything has just been written.
type state map[string]value.Value

func (s state) Value(name string) value.Value { return s[name] }
func (s state) Changed(name string) bool      { return s[name] != nil }
func (s state) Version(string) int64          { return 1 }

// A reducer says how the writes of one superstep become a field's value.
func ExampleReducer_Fold() {
	committed := value.Value(`["a"]`)
	writes := []value.Value{value.Value(`["b","a"]`), value.Value(`"c"`)}
	for _, r := range []graph.Reducer{{Name: "append"}, {Name: "union"}, {Name: "replace"}} {
		folded, err := r.Fold(committed, writes)
		fmt.Println(r.Name, string(folded), err)
	}
	// Output:
	// append ["a","b","a","c"] <nil>
	// union ["a","b","c"] <nil>
	// replace "c" <nil>
}

// Graphviz draws, too.
func ExampleCompiled_Graphviz() {
	drawing := published(text).Graphviz(nil)
	fmt.Println(strings.Contains(drawing, "digraph"), strings.Contains(drawing, "letter"))
	// Output: true true
}

// Durations are written as Go writes them.
func ExampleParseDuration() {
	d, err := graph.ParseDuration("1m30s")
	fmt.Println(d, err)
	_, err = graph.ParseDuration("soon")
	fmt.Println(err != nil)
	// Output:
	// 1m30s <nil>
	// true
}
