package graphtest

import (
	"encoding/json"
	"fmt"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/value"
)

// planned is for how many attempts of a node a fate is drawn, and how many troubles there are.
const planned = 4

// Check requires the properties of every history of a graph with its real nodes: of the plain
// one, of those with a crash before or after one commit, of those with one reply lost, and of
// random ones; -rapid.checks says how many of these there are. It ends at the first history of which
// one does not hold.
func Check(t proptest.T, doc *graph.Document, nodes *node.Registry, properties ...Property) {
	t.Helper()
	if doc == nil || nodes == nil {
		t.Fatalf("graphtest: the graph or the registry is nil")
		return
	}
	s := settings{commits: 500}
	for _, p := range properties {
		if p.set != nil {
			p.set(&s)
		}
	}
	compiled, err := graph.Publish(doc, nodes)
	if err != nil {
		t.Fatalf("the graph: %v", err)
		return
	}
	c := &checker{graph: compiled, nodes: nodes, settings: s, properties: properties}
	plain := c.history(t, "without any trouble", plan{})
	for n := 1; n <= plain.commits && !t.Failed(); n++ {
		for _, what := range []trouble{crashBefore, crashAfter, replyLost} {
			c.history(t, fmt.Sprintf("when %s commit %d", what, n), plan{troubles: map[int]trouble{n: what}})
			if t.Failed() {
				return
			}
		}
	}
	rapid.Check(proptest.TB(t), func(rt *rapid.T) {
		c.history(rt, "with random trouble", c.draw(rt))
	})
	t.Logf("%d histories, %d commits, %d attempts that read their idempotency key, %d effects, %d of them asked for again", c.histories, c.commits, c.reads, c.effects, c.repeats)
}

// checker is one Check.
type checker struct {
	graph      *graph.Compiled
	nodes      *node.Registry
	settings   settings
	properties []Property

	histories, commits, reads, effects, repeats int
}

// history plays one and judges it.
func (c *checker) history(t proptest.T, when string, p plan) *history {
	t.Helper()
	h := newHistory(t, c.graph, c.nodes, c.settings, p)
	h.run()
	c.histories++
	c.commits += h.commits
	c.reads += h.reads
	c.effects += len(h.world.effects)
	c.repeats += h.world.repeats
	for _, p := range c.properties {
		if p.holds == nil {
			continue
		}
		if verdict := p.holds(h); verdict != "" {
			t.Fatalf("%s, %s\n\nwhat happened:\n%s\n", when, verdict, h)
		}
	}
	return h
}

// draw draws what happens in a history.
func (c *checker) draw(rt *rapid.T) plan {
	p := plan{fates: map[string][]fate{}, troubles: map[int]trouble{}}
	for _, n := range c.graph.Nodes() {
		p.fates[n.ID] = rapid.SliceOfN(rapid.SampledFrom(fates), 0, planned).Draw(rt, "fates of "+n.ID)
	}
	for range rapid.IntRange(0, planned).Draw(rt, "troubles") {
		p.troubles[rapid.IntRange(1, 2*len(p.fates)+2).Draw(rt, "commit")] = rapid.SampledFrom([]trouble{replyLost, crashAfter, crashBefore}).Draw(rt, "trouble")
	}
	p.answers = rapid.SliceOfN(rapid.IntRange(0, 9), planned, planned).Draw(rt, "answers")
	p.lets = rapid.SliceOfN(rapid.Bool(), planned, planned).Draw(rt, "left to the deadline")
	return p
}

// choices are the values that a schema names.
func choices(schema value.Value) []any {
	var named struct {
		Enum  []any `json:"enum"`
		Const any   `json:"const"`
	}
	if json.Unmarshal(schema, &named) != nil {
		return nil
	}
	return append(named.Enum, named.Const)
}
