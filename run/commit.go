package run

import (
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/graph"
)

// commit is a proposal in the making: a copy of the document whose parts are
// replaced, never altered, and the events so far.
type commit struct {
	from   *Document
	next   *Document
	events []Event
	now    time.Time
	// Which slices of next are this commit's own, so that they may be altered.
	ownState, ownPending, ownInterrupts, ownBarriers bool
}

// begin copies the document; events is about how many there will be.
func begin(d *Document, now time.Time, events int) *commit {
	next := *d
	next.UpdatedAt = now
	next.Seq++
	return &commit{from: d, next: &next, now: now, events: make([]Event, 0, events)}
}

// emit appends an event, numbered, for the caller to fill in at once. Its step is the
// one that the commit found.
func (c *commit) emit(t EventType) *Event {
	c.next.EventSeq++
	c.events = append(c.events, Event{})
	e := &c.events[len(c.events)-1]
	e.Run, e.Seq, e.Type, e.At, e.Step = c.from.ID, c.next.EventSeq, t, c.now, c.from.Step
	return e
}

// propose closes the commit.
func (c *commit) propose(t checkpoint.Type, s checkpoint.Schedule) Proposal {
	e := c.emit(EventCheckpointCommitted)
	e.Checkpoint, e.Commit = t, c.next.Seq
	return Proposal{
		Document: c.next, Events: c.events, Type: t, Schedule: s,
		Expected: c.next.Seq - 1, Now: c.now,
	}
}

// end brings the run to a terminal status: nothing is left that could wake it.
func (c *commit) end(status Status) {
	d := c.next
	d.Status, d.FinishedAt = status, c.now
	d.Tasks, d.Writes, d.Timers, d.Pending, d.Renamed = nil, nil, nil, nil, nil
	for k := range d.Interrupts {
		if d.Interrupts[k].Status != InterruptOpen {
			continue
		}
		i := &c.interrupts()[k]
		i.Status = InterruptClosed
		e := c.emit(EventInterruptClosed)
		e.Node, e.Interrupt = i.Node, i.ID
	}
}

// set puts a field's value into the state and marks it as changed.
func (c *commit) set(ch Channel) {
	if !c.ownState {
		c.next.State = append(make([]Channel, 0, len(c.next.State)+1), c.next.State...)
		c.next.Changed = slices.Clip(c.next.Changed)
		c.ownState = true
	}
	if i, ok := findChannel(c.next.State, ch.Name); ok {
		c.next.State[i] = ch
	} else {
		c.next.State = slices.Insert(c.next.State, i, ch)
	}
	if i, ok := slices.BinarySearch(c.next.Changed, ch.Name); !ok {
		c.next.Changed = slices.Concat(c.next.Changed[:i], []string{ch.Name}, c.next.Changed[i:])
	}
}

// pend makes a node one to run next, once.
func (c *commit) pend(node string) {
	i, ok := slices.BinarySearch(c.next.Pending, node)
	if ok {
		return
	}
	if !c.ownPending {
		c.next.Pending, c.ownPending = append(make([]string, 0, len(c.next.Pending)+1), c.next.Pending...), true
	}
	c.next.Pending = slices.Insert(c.next.Pending, i, node)
}

func (c *commit) interrupts() []Interrupt {
	if !c.ownInterrupts {
		c.next.Interrupts, c.ownInterrupts = slices.Clone(c.next.Interrupts), true
	}
	return c.next.Interrupts
}

// ask opens interrupts, and makes their nodes pending.
func (c *commit) ask(asked []*Interrupt) {
	if len(asked) == 0 {
		return
	}
	open := c.interrupts()
	for _, q := range asked {
		open = append(open, *q)
		c.pend(q.Node)
	}
	slices.SortFunc(open, func(a, b Interrupt) int { return strings.Compare(a.ID, b.ID) })
	c.next.Interrupts = open
}

// requested emits the questions that were asked, which come by id.
func (c *commit) requested(asked []*Interrupt) {
	for _, q := range asked {
		q.tell(c.emit(EventInterruptRequested))
	}
}

// forget drops what a node that has now completed was asked and told. The
// interrupts' ids and times stay.
func (c *commit) forget(node string) {
	for k := range c.next.Interrupts {
		i := &c.next.Interrupts[k]
		if i.Node != node || i.Answer == nil {
			continue
		}
		c.interrupts()[k] = Interrupt{
			ID: i.ID, Node: i.Node, Status: i.Status,
			RequestedAt: i.RequestedAt, ResolvedAt: i.ResolvedAt, Deadline: i.Deadline,
		}
	}
}

// forgetRenamed drops the renamings of nodes that have nothing left to do in this superstep.
func (c *commit) forgetRenamed() {
	var left []Renaming
	for _, r := range c.next.Renamed {
		if _, parked := findTask(c.next.Tasks, r.Node); parked || contains(c.next.Pending, r.Node) {
			left = append(left, r)
		}
	}
	c.next.Renamed = left
}

// count adds a completion to each of the nodes, which come sorted.
func (c *commit) count(nodes []string) {
	if len(nodes) == 0 {
		return
	}
	counts := append(make([]NodeCount, 0, len(c.next.Completed)+len(nodes)), c.next.Completed...)
	for _, node := range nodes {
		i, ok := slices.BinarySearchFunc(counts, node, func(n NodeCount, node string) int { return strings.Compare(n.Node, node) })
		if !ok {
			counts = slices.Insert(counts, i, NodeCount{Node: node})
		}
		counts[i].Count++
	}
	c.next.Completed = counts
}

// countEdges adds one to each of the fired edges.
func (c *commit) countEdges(fired []string) {
	if len(fired) == 0 {
		return
	}
	counts := append(make([]EdgeCount, 0, len(c.next.Edges)+len(fired)), c.next.Edges...)
	for _, edge := range fired {
		i, ok := slices.BinarySearchFunc(counts, edge, func(n EdgeCount, edge string) int { return strings.Compare(n.Edge, edge) })
		if !ok {
			counts = slices.Insert(counts, i, EdgeCount{Edge: edge})
		}
		counts[i].Fired++
	}
	c.next.Edges = counts
}

// collect adds the completed sources to a barrier edge. When all are in it answers
// true, and the barrier starts over.
func (c *commit) collect(edge *graph.CompiledEdge, completed []string) bool {
	k, begun := slices.BinarySearchFunc(c.next.Barriers, edge.ID, func(b Barrier, id string) int { return strings.Compare(b.Edge, id) })
	var sources []string
	for _, from := range edge.From {
		if contains(completed, from) || begun && contains(c.next.Barriers[k].Sources, from) {
			sources = append(sources, from)
		}
	}
	full := len(sources) == len(edge.From)
	if full && !begun {
		return true
	}
	if !c.ownBarriers {
		c.next.Barriers, c.ownBarriers = append(make([]Barrier, 0, len(c.next.Barriers)+1), c.next.Barriers...), true
	}
	switch {
	case full:
		c.next.Barriers = slices.Delete(c.next.Barriers, k, k+1)
	case begun:
		c.next.Barriers[k].Sources = sources
	default:
		c.next.Barriers = slices.Insert(c.next.Barriers, k, Barrier{Edge: edge.ID, Sources: sources})
	}
	if len(c.next.Barriers) == 0 {
		c.next.Barriers = nil
	}
	return full
}
