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
	for grown := true; grown; {
		grown = false
		for _, e := range c.out.edges {
			ready := len(e.From) > 0 && !slices.ContainsFunc(e.From, func(source string) bool { return !reached[source] })
			if ready && !reached[e.To] {
				reached[e.To], grown = true, true
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
	for name := range c.guards {
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
		if !used[ch.Name] {
			c.report(codeUnusedInput, at("/inputs", ch.Name), "Nothing reads %q: remove it, or use it.", ch.Name)
		}
		if ch.Required && ch.Default != nil {
			c.report(codeRequiredDefault, at(at("/inputs", ch.Name), "default"), "%q is required, so its default is never used: remove one of them.", ch.Name)
		}
	}
	for _, ch := range c.out.fields {
		if !used[ch.Name] {
			c.report(codeUnusedField, at("/fields", ch.Name), "Nothing reads %q: remove it, or use it.", ch.Name)
		}
	}
}

// cycle is the least node id on some cycle.
func (c *compiler) cycle() (string, bool) {
	for _, n := range c.out.nodes {
		seen := map[string]bool{}
		next := []string{n.ID}
		for len(next) > 0 {
			at := next[len(next)-1]
			next = next[:len(next)-1]
			for _, e := range c.out.from[at] {
				if e.To == n.ID {
					return n.ID, true
				}
				if !seen[e.To] {
					seen[e.To] = true
					next = append(next, e.To)
				}
			}
		}
	}
	return "", false
}

// warnAmbiguous reports fields that two nodes of one superstep may replace.
// Activations advance in step with each other, so two nodes can meet when edges
// lead to them from one node, or from two that can meet. Edges of one source whose
// guards differ count as alternatives.
func (c *compiler) warnAmbiguous() {
	writers := map[string][]string{}
	for _, n := range c.out.nodes {
		for _, b := range n.Writes {
			if ch := c.out.channels[b.State]; ch != nil && !ch.Input && ch.Reducer.name() == reduceReplace {
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

func (c *compiler) meetings() map[[2]string]bool {
	meets := map[[2]string]bool{{Start, Start}: true}
	next := [][2]string{{Start, Start}}
	for len(next) > 0 {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		for _, one := range c.out.from[at[0]] {
			for _, other := range c.out.from[at[1]] {
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
