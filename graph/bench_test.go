package graph

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belay-run/belay/value"
)

func BenchmarkGuard(b *testing.B) {
	s := &states{
		values:  map[string]value.Value{"n": raw(`3`), "x": raw(`2.5`), "flag": raw(`true`), "list": numbers(10), "any": numbers(100_000)},
		changed: map[string]bool{"n": true}, versions: map[string]int64{"n": 2},
	}
	for _, when := range []string{`state.flag`, `state.n > 2`, `state.n > 2 and changed("n")`, `len(state.list) > 0`, `all(state.list, # >= 0)`} {
		b.Run(strings.ReplaceAll(when, " ", "_"), func(b *testing.B) {
			e := guarded(b, when)
			b.ReportAllocs()
			for b.Loop() {
				if ok, err := e.Eval(s); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}

// chain is a graph of n nodes, guards on every third edge.
func chain(n int) *Document {
	doc := &Document{
		ID: "chain", Inputs: map[string]Input{"in": {Schema: raw(`{"type":"integer"}`), Required: true}},
		Fields: map[string]Field{}, Nodes: map[string]Node{}, Edges: map[string]Edge{}, Outputs: map[string]Output{"out": {From: "f0"}},
		Policies: Policies{MaxSupersteps: 100},
	}
	from := Start
	for i := range n {
		id, field := fmt.Sprintf("n%d", i), fmt.Sprintf("f%d", i)
		doc.Fields[field] = Field{Schema: raw(`{"type":"object","properties":{"v":{"type":"integer"}},"required":["v"]}`)}
		doc.Nodes[id] = Node{Use: "set", Config: nil, Reads: map[string]string{"in": "in"}, Writes: map[string]string{"f": field}, Retry: &Retry{MaxAttempts: 3}}
		e := Edge{From: Sources{from}, To: id}
		if i%3 == 0 {
			e.When = "state.in > 0 and state." + field + " == nil"
		}
		doc.Edges[fmt.Sprintf("e%d", i)] = e
		from = id
	}
	doc.Edges["end"] = Edge{From: Sources{from}, To: Finish}
	return doc
}

func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{10, 100} {
		b.Run(fmt.Sprintf("%d_nodes", n), func(b *testing.B) {
			c, err := Publish(chain(n), shop)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Load(c.Ref(), c.Bytes()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPublish(b *testing.B) {
	doc := chain(10)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Publish(doc, shop); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFold(b *testing.B) {
	for name, r := range map[string]Reducer{"replace": {}, "append": {Name: "append"}, "append_unique": {Name: "append", Unique: true}, "sum": {Name: "sum"}, "merge": {Name: "merge"}} {
		committed, writes := numbers(100), []value.Value{raw(`[1,2]`), raw(`3`)}
		switch name {
		case "sum":
			committed, writes = raw(`1`), []value.Value{raw(`2`), raw(`3`)}
		case "merge":
			committed, writes = raw(`{"a":1,"b":{"c":2}}`), []value.Value{raw(`{"a":2}`), raw(`{"d":[1,2,3]}`)}
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Fold(committed, writes); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
