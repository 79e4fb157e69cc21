package graph

import "slices"

// checkReach reports nodes that no path from $start leads to.
func (c *compiler) checkReach() {
	entry := slices.ContainsFunc(c.out.from[Start], func(e *CompiledEdge) bool { return c.out.nodeByID[e.To] != nil })
	if !entry {
		c.report(codeNoEntryPoint, "/edges", "No edge leads from %s to a node: add one.", Start)
		return
	}
	reached := map[string]bool{Start: true}
	missing := make(map[*CompiledEdge]int, len(c.out.edges))
	for next := []string{Start}; len(next) > 0; {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		for _, e := range c.out.from[at] {
			if _, met := missing[e]; !met {
				missing[e] = len(slices.Compact(slices.Clone(e.From)))
			}
			if missing[e]--; missing[e] == 0 && !reached[e.To] {
				reached[e.To] = true
				next = append(next, e.To)
			}
		}
	}
	for _, n := range c.out.nodes {
		if !reached[n.ID] {
			c.report(codeUnreachableNode, at("/nodes", n.ID), "No path of edges leads from %s to %q: add an edge to it, or remove it.", Start, n.ID)
		}
	}
}

// warn looks for what is legal but probably not meant.
func (c *compiler) warn() {
	for _, n := range c.out.nodes {
		if len(c.out.from[n.ID]) == 0 {
			c.report(codeDeadEnd, at("/nodes", n.ID), "No edge leads on from %q: add one, to %s if the branch ends there.", n.ID, Finish)
		}
	}
	if c.doc.Policies.MaxSupersteps == 0 {
		if id, cyclic := c.cycle(); cyclic {
			c.report(codeUnboundedCycle, at("/nodes", id), "%q is in a cycle and nothing bounds it: set policies.max_supersteps.", id)
		}
	}
	c.warnUnused()
	c.warnAmbiguous()
}

func (c *compiler) warnUnused() {
	used := map[string]bool{}
	for name := range c.mentioned {
		used[name] = true
	}
	for _, n := range c.out.nodes {
		for _, b := range n.Reads {
			used[b.State] = true
		}
	}
	for _, o := range c.out.outputs {
		used[o.From] = true
	}
	for _, ch := range c.out.inputs {
		if !used[ch.Name] && !c.opaque {
			c.report(codeUnusedInput, at("/inputs", ch.Name), "Nothing reads %q: remove it, or use it.", ch.Name)
		}
		if ch.Required && ch.Default != nil {
			c.report(codeRequiredDefault, at(at("/inputs", ch.Name), "default"), "%q is required, so its default is never used: remove one of them.", ch.Name)
		}
	}
	for _, ch := range c.out.fields {
		if !used[ch.Name] && !c.opaque {
			c.report(codeUnusedField, at("/fields", ch.Name), "Nothing reads %q: remove it, or use it.", ch.Name)
		}
	}
}

// cycle is the least node id on some cycle.
func (c *compiler) cycle() (string, bool) {
	t := tarjan{from: c.out.from, order: map[string]int{}, low: map[string]int{}, open: map[string]bool{}}
	for _, n := range c.out.nodes {
		if t.order[n.ID] == 0 {
			t.visit(n.ID)
		}
	}
	// An edge that wrongly leaves $finish is reported as what it is.
	cyclic := slices.DeleteFunc(t.cyclic, func(id string) bool { return c.out.nodeByID[id] == nil })
	if len(cyclic) == 0 {
		return "", false
	}
	return slices.Min(cyclic), true
}

// tarjan finds strongly connected components, and keeps those that are cycles.
type tarjan struct {
	from   map[string][]*CompiledEdge
	order  map[string]int // when a node was first seen, from 1
	low    map[string]int // the earliest node it leads back to
	stack  []string
	open   map[string]bool // on the stack
	cyclic []string
}

func (t *tarjan) visit(id string) {
	t.order[id] = len(t.order) + 1
	t.low[id] = t.order[id]
	t.stack, t.open[id] = append(t.stack, id), true
	itself := false
	for _, e := range t.from[id] {
		switch {
		case e.To == id:
			itself = true
		case t.order[e.To] == 0:
			t.visit(e.To)
			t.low[id] = min(t.low[id], t.low[e.To])
		case t.open[e.To]:
			t.low[id] = min(t.low[id], t.order[e.To])
		}
	}
	if t.low[id] != t.order[id] {
		return
	}
	at := len(t.stack) - 1
	for t.stack[at] != id {
		at--
	}
	component := t.stack[at:]
	for _, member := range component {
		t.open[member] = false
	}
	if len(component) > 1 || itself {
		t.cyclic = append(t.cyclic, component...)
	}
	t.stack = t.stack[:at]
}

// warnAmbiguous reports fields that two nodes of one superstep may replace.
// Activations advance in step with each other, so two nodes can meet when edges
// lead to them from one node, or from two that can meet. Edges of one source whose
// guards differ count as alternatives.
func (c *compiler) warnAmbiguous() {
	writers := map[string][]string{}
	for _, n := range c.out.nodes {
		for _, b := range n.Writes {
			ch := c.out.channels[b.State]
			if ch != nil && !ch.Input && ch.Reducer.name() == reduceReplace && !slices.Contains(writers[b.State], n.ID) {
				writers[b.State] = append(writers[b.State], n.ID)
			}
		}
	}
	var meets map[[2]string]bool
	for _, field := range sortedKeys(writers) {
		nodes := writers[field]
		if len(nodes) < 2 {
			continue
		}
		if meets == nil {
			meets = c.meetings()
		}
		for i, a := range nodes {
			for _, b := range nodes[i+1:] {
				if meets[pair(a, b)] {
					c.report(codeAmbiguousWrite, at("/fields", field), "%q and %q may replace %q in the same superstep, and then %q wins: choose a reducer, or make the branches exclude each other.", a, b, field, b)
				}
			}
		}
	}
}

func pair(a, b string) [2]string {
	if b < a {
		a, b = b, a
	}
	return [2]string{a, b}
}

// maxMeetings bounds the search for nodes that meet; beyond it fewer are found.
const maxMeetings = 4 << 20

func (c *compiler) meetings() map[[2]string]bool {
	steps := 0
	meets := map[[2]string]bool{{Start, Start}: true}
	next := [][2]string{{Start, Start}}
	for len(next) > 0 {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		for _, one := range c.out.from[at[0]] {
			for _, other := range c.out.from[at[1]] {
				if steps++; steps > maxMeetings {
					return meets
				}
				if one.To == Finish || other.To == Finish {
					continue
				}
				a, b := c.doc.Edges[one.ID].When, c.doc.Edges[other.ID].When
				if at[0] == at[1] && a != "" && b != "" && a != b {
					continue
				}
				if to := pair(one.To, other.To); !meets[to] {
					meets[to] = true
					next = append(next, to)
				}
			}
		}
	}
	return meets
}
