package run

import (
	"cmp"
	"slices"
	"strings"

	"github.com/belay-run/belay/graph"
)

// moveInput brings what the start gave to the version's inputs.
func (g *migration) moveInput() {
	given := map[string]Channel{}
	for _, c := range g.from.Input {
		if c.Version == 0 {
			continue // the old version's default
		}
		path := pointerOf("input", c.Name)
		to, ok := g.past(&g.fields, c.Name, path)
		if !ok {
			continue
		}
		if ch := g.machine.graph.Channel(to); !ch.Input {
			g.problem(MigrateDifferent, path, "becomes %s, which is a field: an input stays an input", to)
		} else if err := ch.CheckValue(c.Value); err != nil {
			g.unfit(path, to, err)
		}
		given[to] = Channel{Name: to, Value: c.Value, Version: c.Version}
	}
	g.c.next.Input = nil
	for _, in := range g.machine.graph.Inputs() {
		c, ok := given[in.Name]
		switch {
		case ok:
			g.c.next.Input = append(g.c.next.Input, c)
		case in.Default != nil:
			g.c.next.Input = append(g.c.next.Input, Channel{Name: in.Name, Value: in.Default})
		case in.Required:
			g.problem(MigrateMissingInput, pointerOf("input", in.Name), "is required by the version, and the run was not given it: give it a default in the graph")
		}
	}
}

// moveState brings what was written to the version's fields.
func (g *migration) moveState() {
	written := map[string]Channel{}
	for _, c := range g.from.State {
		if c.Version == 0 {
			continue // the old version's default
		}
		path := pointerOf("state", c.Name)
		to, ok := g.past(&g.fields, c.Name, path)
		if !ok {
			continue
		}
		if ch := g.field(path, to); ch != nil {
			if err := ch.CheckValue(c.Value); err != nil {
				g.unfit(path, to, err)
			}
		}
		written[to] = Channel{Name: to, Value: c.Value, Version: c.Version}
	}
	next := g.c.next
	next.State = nil
	for _, f := range g.machine.graph.Fields() {
		if c, ok := written[f.Name]; ok {
			next.State = append(next.State, c)
		} else if f.Default != nil {
			next.State = append(next.State, Channel{Name: f.Name, Value: f.Default})
		}
	}
	next.Changed = nil
	for _, name := range g.from.Changed {
		if to, ok := g.fields.to[name]; ok {
			next.Changed = append(next.Changed, to)
		}
	}
	slices.Sort(next.Changed)
}

// field is the field of that name; an input in its place is a problem.
func (g *migration) field(path, name string) *graph.Channel {
	ch := g.machine.graph.Channel(name)
	if ch.Input {
		g.problem(MigrateDifferent, path, "becomes %s, which is an input: a field stays a field", name)
		return nil
	}
	return ch
}

func (g *migration) unfit(path, name string, err error) {
	bad := asValueError(err)
	g.problem(MigrateUnfit, path+bad.Path, "does not fit %s: %s", name, bad.Reason)
}

// moveCounts brings along how often nodes completed and edges fired.
func (g *migration) moveCounts() {
	next := g.c.next
	next.Completed, next.Edges = nil, nil
	for _, c := range g.from.Completed {
		if to, ok := g.past(&g.nodes, c.Node, pointerOf("completed", c.Node)); ok {
			next.Completed = append(next.Completed, NodeCount{Node: to, Count: c.Count})
		}
	}
	for _, c := range g.from.Edges {
		if to, ok := g.past(&g.edges, c.Edge, pointerOf("edges", c.Edge)); ok {
			next.Edges = append(next.Edges, EdgeCount{Edge: to, Fired: c.Fired})
		}
	}
	slices.SortFunc(next.Completed, func(a, b NodeCount) int { return strings.Compare(a.Node, b.Node) })
	slices.SortFunc(next.Edges, func(a, b EdgeCount) int { return strings.Compare(a.Edge, b.Edge) })
}

// moveBarriers brings along what barriers have collected. One that would be full has to
// fire, which only a completion makes it do.
func (g *migration) moveBarriers() {
	g.c.next.Barriers = nil
	for _, b := range g.from.Barriers {
		path := pointerOf("barriers", b.Edge)
		id, ok := g.of(&g.edges, b.Edge, path)
		if !ok {
			continue
		}
		edge := g.edge(id)
		moved := Barrier{Edge: id}
		for _, source := range b.Sources {
			to := source
			if source != graph.Start {
				if to, ok = g.of(&g.nodes, source, pointerOf("barriers", b.Edge, source)); !ok {
					continue
				}
			}
			if !slices.Contains(edge.From, to) {
				g.problem(MigrateDifferent, pointerOf("barriers", b.Edge, source), "has completed for the edge %s, which %s does not lead to in the version", id, to)
				continue
			}
			moved.Sources = append(moved.Sources, to)
		}
		switch {
		case !edge.Barrier():
			g.problem(MigrateDifferent, path, "has collected %s, and the edge %s collects nothing in the version", strings.Join(b.Sources, ", "), id)
		case len(moved.Sources) == len(edge.From):
			g.problem(MigrateDifferent, path, "has collected all that the edge %s waits for in the version, and nothing would make it fire", id)
		}
		slices.Sort(moved.Sources)
		g.c.next.Barriers = append(g.c.next.Barriers, moved)
	}
	slices.SortFunc(g.c.next.Barriers, func(a, b Barrier) int { return strings.Compare(a.Edge, b.Edge) })
}

func (g *migration) edge(id string) *graph.CompiledEdge {
	edges := g.machine.graph.Edges()
	i, _ := slices.BinarySearchFunc(edges, id, func(e *graph.CompiledEdge, id string) int { return strings.Compare(e.ID, id) })
	return edges[i]
}

// movePending brings along the nodes to run, and under which names their tasks go on.
func (g *migration) movePending() {
	next := g.c.next
	next.Pending, next.Renamed = nil, nil
	for _, node := range g.from.Pending {
		if to, ok := g.of(&g.nodes, node, pointerOf("pending", node)); ok {
			next.Pending = append(next.Pending, to)
			g.rename(node, to)
		}
	}
	slices.Sort(next.Pending)
}

// rename keeps the name of a node's task in the superstep that is under way.
func (g *migration) rename(node, to string) {
	was := g.from.taskName(node)
	if was == to {
		return
	}
	if i, there := findRenaming(g.c.next.Renamed, to); !there {
		g.c.next.Renamed = slices.Insert(g.c.next.Renamed, i, Renaming{Node: to, Was: was})
	}
}

// moveTasks brings along the parked tasks: they go on as they were planned, so their
// nodes must still be what they were planned for.
func (g *migration) moveTasks() {
	next := g.c.next
	next.Tasks = nil
	for _, t := range g.from.Tasks {
		path := pointerOf("tasks", t.Node)
		to, ok := g.of(&g.nodes, t.Node, path)
		if !ok {
			continue
		}
		node, old := g.machine.graph.Node(to), g.old.Node(t.Node)
		if g.sameType(path, to, old) && !slices.EqualFunc(node.Reads, old.Reads, func(a, b graph.Binding) bool { return a.Name == b.Name }) {
			g.problem(MigrateDifferent, path, "is parked on a snapshot of what the node read, and %s reads under other names", to)
		} else {
			g.checkSnapshot(path, node, t.Snapshot)
		}
		g.rename(t.Node, to)
		t.Node = to
		next.Tasks = append(next.Tasks, t)
	}
	slices.SortFunc(next.Tasks, func(a, b Task) int { return strings.Compare(a.Node, b.Node) })
}

// sameType: a node in the middle of its work stays of its type; its version may change.
func (g *migration) sameType(path, to string, old *graph.CompiledNode) bool {
	use := g.machine.graph.Node(to).Use
	if use == old.Use {
		return true
	}
	g.problem(MigrateDifferent, path, "is in the middle of the work of a %s, and %s is a %s", old.Use, to, use)
	return false
}

// checkSnapshot checks what a parked task has read against where its node reads now.
func (g *migration) checkSnapshot(path string, node *graph.CompiledNode, snapshot []Channel) {
	for _, c := range snapshot {
		b, ok := binding(node.Reads, c.Name)
		if !ok {
			continue // told already: the node reads under other names
		}
		if err := g.machine.graph.Channel(b.State).CheckValue(c.Value); err != nil {
			g.unfit(path+pointerOf("snapshot", c.Name), b.State, err)
		}
	}
}

// moveWrites brings along the results that wait for the barrier.
func (g *migration) moveWrites() {
	next := g.c.next
	next.Writes = nil
	for _, w := range g.from.Writes {
		path := pointerOf("writes", w.Node)
		to, ok := g.of(&g.nodes, w.Node, path)
		if !ok {
			continue
		}
		moved := Write{Node: to, Skipped: w.Skipped, Reason: w.Reason}
		for _, u := range w.Update {
			path := path + pointerOf("update", u.Name)
			name, ok := g.of(&g.fields, u.Name, path)
			if !ok {
				continue
			}
			if ch := g.field(path, name); ch != nil {
				if err := ch.CheckWrite(u.Value); err != nil {
					g.unfit(path, name, err)
				}
			}
			moved.Update = append(moved.Update, Channel{Name: name, Value: u.Value, Version: u.Version})
		}
		slices.SortFunc(moved.Update, func(a, b Channel) int { return strings.Compare(a.Name, b.Name) })
		next.Writes = append(next.Writes, moved)
	}
	slices.SortFunc(next.Writes, func(a, b Write) int { return strings.Compare(a.Node, b.Node) })
}

// moveInterrupts brings along what is asked. What was answered and forgotten only keeps
// its id taken, so its node need not exist any more.
func (g *migration) moveInterrupts() {
	interrupts := slices.Clone(g.from.Interrupts)
	for k := range interrupts {
		i := &interrupts[k]
		node := i.Node
		i.Node = cmp.Or(g.nodes.to[node], node)
		if i.Status != InterruptOpen {
			i.Field = cmp.Or(g.fields.to[i.Field], i.Field)
			continue
		}
		path := pointerOf("interrupts", i.ID)
		if _, ok := g.of(&g.nodes, node, path); !ok || !g.sameType(path, i.Node, g.old.Node(node)) {
			continue
		}
		if i.Field != "" {
			to, ok := g.of(&g.fields, i.Field, path+"/field")
			if !ok || g.field(path+"/field", to) == nil {
				continue
			}
			i.Field = to
		}
		if _, err := g.machine.answerSchema(i); err != nil {
			g.problem(MigrateUnfit, path+"/schema", "is not a schema among the version's shared ones: %v", err)
		} else if i.Default != nil {
			if err := g.machine.checkAnswer(g.c.next, i, i.Default); err != nil {
				g.problem(MigrateUnfit, path+"/default", "would not be taken as the answer at the deadline: %v", err)
			}
		}
	}
	g.c.next.Interrupts = interrupts
}
