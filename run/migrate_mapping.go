package run

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/belay-run/belay/graph"
)

// Mapping says what becomes of the names of a graph when a run of it moves to another
// version: old names lead to new ones. A name that is not mentioned keeps itself. One
// mapping serves all runs of a version, wherever they stand.
type Mapping struct {
	Nodes map[string]string `json:"nodes,omitempty"`
	// Fields are state names: fields and inputs.
	Fields map[string]string `json:"fields,omitempty"`
	Edges  map[string]string `json:"edges,omitempty"`
	Drop   Dropped           `json:"drop,omitzero"`
}

// Dropped names what a run may lose: the values of fields, and how often nodes and edges
// were passed. What is still to be done is not lost by it, but refused.
type Dropped struct {
	Nodes  []string `json:"nodes,omitempty"`
	Fields []string `json:"fields,omitempty"`
	Edges  []string `json:"edges,omitempty"`
}

// counterparts is what becomes of one kind of names.
type counterparts struct {
	kind    string // as a message calls it
	to      map[string]string
	dropped map[string]bool
}

// match finds the counterpart of every name of the old version, and judges the mapping.
func (g *migration) match(m Mapping) {
	g.nodes = g.pair("node", "nodes", nodeNames(g.old), nodeNames(g.machine.graph), m.Nodes, m.Drop.Nodes)
	g.fields = g.pair("field", "fields", stateNames(g.old), stateNames(g.machine.graph), m.Fields, m.Drop.Fields)
	g.edges = g.pair("edge", "edges", edgeNames(g.old), edgeNames(g.machine.graph), m.Edges, m.Drop.Edges)
}

func nodeNames(c *graph.Compiled) map[string]bool {
	names := map[string]bool{}
	for _, n := range c.Nodes() {
		names[n.ID] = true
	}
	return names
}

func stateNames(c *graph.Compiled) map[string]bool {
	names := map[string]bool{}
	for _, ch := range slices.Concat(c.Inputs(), c.Fields()) {
		names[ch.Name] = true
	}
	return names
}

func edgeNames(c *graph.Compiled) map[string]bool {
	names := map[string]bool{}
	for _, e := range c.Edges() {
		names[e.ID] = true
	}
	return names
}

// pair leads each of the old names to a new one, or to none.
func (g *migration) pair(kind, member string, old, next map[string]bool, renames map[string]string, drop []string) counterparts {
	c := counterparts{kind: kind, to: map[string]string{}, dropped: map[string]bool{}}
	for _, name := range drop {
		path := pointerOf("mapping", "drop", member, name)
		switch _, renamed := renames[name]; {
		case !old[name]:
			g.problem(MigrateUnknownName, path, "is no %s of the version that the run has: leave it out", kind)
		case renamed:
			g.problem(MigrateAmbiguous, path, "is dropped and renamed at once: say one of the two")
		}
		c.dropped[name] = true
	}
	taken := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(renames)) {
		path, to := pointerOf("mapping", member, name), renames[name]
		switch {
		case !old[name]:
			g.problem(MigrateUnknownName, path, "is no %s of the version that the run has: leave it out", kind)
		case !next[to]:
			g.problem(MigrateUnknownName, path, "leads to %q, which is no %s of the version that the run is to have", to, kind)
		case taken[to] != "":
			g.problem(MigrateAmbiguous, path, "leads to %s, and so does %s: let each lead to another %s, or drop one", to, taken[to], kind)
		default:
			taken[to] = name
			c.to[name] = to
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if _, renamed := renames[name]; renamed || c.dropped[name] || !next[name] {
			continue
		}
		if by := taken[name]; by != "" {
			g.problem(MigrateAmbiguous, pointerOf("mapping", member, by), "leads to %s, which the version that the run has names too: rename that one, or drop it", name)
			continue
		}
		c.to[name] = name
	}
	return c
}

// of is the counterpart of a name; without one, a name that is still needed is a problem
// at the path.
func (g *migration) of(c *counterparts, name, path string) (string, bool) {
	to, ok := c.to[name]
	if !ok {
		g.problem(MigrateNoCounterpart, path, "has no counterpart, and is still needed: map the %s %s to another, or let the run get past it first", c.kind, name)
	}
	return to, ok
}

// past is the counterpart of a name that is only remembered, which may be dropped.
func (g *migration) past(c *counterparts, name, path string) (string, bool) {
	to, ok := c.to[name]
	if !ok && !c.dropped[name] {
		g.problem(MigrateNoCounterpart, path, "has no counterpart: map the %s %s to another, or name it among what is dropped", c.kind, name)
	}
	return to, ok
}

// pointerOf is the JSON Pointer of a part.
func pointerOf(tokens ...string) string {
	p := jsontext.Pointer("")
	for _, t := range tokens {
		p = p.AppendToken(t)
	}
	return string(p)
}
