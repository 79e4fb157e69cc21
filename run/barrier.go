package run

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

// few is how much of a superstep is worked on without allocating; most are smaller.
const few = 8

// barrier makes the superstep's writes part of the state, and decides what comes
// after. kind is the checkpoint's type unless the run ends here.
func (s *superstep) barrier(c *commit, writes []Write, asked []*Interrupt, kind checkpoint.Type) (Proposal, *Failure) {
	if f := s.machine.fold(c, writes); f != nil {
		return Proposal{}, f
	}
	var room [few]string
	nodes := room[:0]
	for i := range writes {
		nodes = append(nodes, writes[i].Node)
	}
	c.count(nodes)
	if f := s.machine.fire(c, nodes); f != nil {
		return Proposal{}, f
	}
	c.requested(asked)
	if len(c.next.Pending) == 0 {
		return s.machine.complete(c)
	}
	c.next.Step++
	c.next.Renamed = nil
	if !c.next.onlyInterruptsOpen() {
		return c.propose(kind, checkpoint.Schedule{Kind: checkpoint.Retain}), nil
	}
	if len(c.next.Timers) > 0 {
		return c.propose(kind, releaseAt(earliest(c.next.Timers))), nil
	}
	c.next.Status = Waiting
	return c.propose(kind, checkpoint.Schedule{Kind: checkpoint.ReleaseExternal}), nil
}

// fold folds the writes, which come in node order, into the committed values.
func (m *Machine) fold(c *commit, writes []Write) *Failure {
	type entry struct {
		field, node string
		value       value.Value
	}
	var room [few]entry
	entries := room[:0]
	for i := range writes {
		for _, u := range writes[i].Update {
			entries = append(entries, entry{u.Name, writes[i].Node, u.Value})
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return strings.Compare(a.field, b.field) })
	var valueRoom [few]value.Value
	values := valueRoom[:0]
	for i := 0; i < len(entries); {
		field, node := entries[i].field, entries[i].node
		values = values[:0]
		for ; i < len(entries) && entries[i].field == field; i++ {
			if entries[i].node != node {
				node = "" // several writers: none of them alone is to blame
			}
			values = append(values, entries[i].value)
		}
		if f := m.write(c, field, node, values); f != nil {
			return f
		}
	}
	return nil
}

// write folds values into one field and marks it as changed.
func (m *Machine) write(c *commit, field, node string, values []value.Value) *Failure {
	old := c.next.channel(field)
	folded, err := m.folded(old, field, values)
	if err != nil {
		f := foldFailure(field, err)
		f.Node = node
		return &f
	}
	c.set(Channel{Name: field, Value: folded, Version: old.Version + 1})
	e := c.emit(EventStateUpdated)
	e.Field, e.Version = field, old.Version+1
	return nil
}

// folded is the field's value after the writes.
func (m *Machine) folded(old Channel, field string, values []value.Value) (value.Value, error) {
	channel := m.graph.Channel(field)
	if channel == nil || channel.Input {
		return nil, invalid("the graph has no field %s", field)
	}
	if replaces(channel) {
		// CheckWrite judged every write as the whole value it is.
		return values[len(values)-1], nil
	}
	v, err := channel.Fold(old.Value, old.Version, values)
	if err != nil {
		return nil, err
	}
	if len(v) > m.limits.Value {
		return nil, value.Check("the value of the field "+field, len(v), m.limits.Value)
	}
	return v, nil
}

func replaces(c *graph.Channel) bool { return c.Reducer.Name == "" || c.Reducer.Name == "replace" }

// foldFailure is the failure that an error of folded becomes.
func foldFailure(field string, err error) Failure {
	f := Failure{Code: CodeReducer, Message: fmt.Sprintf("the field %s: %v", field, err), Details: about("field", field)}
	switch {
	case errors.Is(err, value.ErrTooLarge):
		f.Code = CodeTooLarge
	case errors.Is(err, value.ErrInvalid):
		f.Code = CodeInvalidUpdate
	}
	return f
}

// fire evaluates the edges that leave the completed nodes, which come sorted.
func (m *Machine) fire(c *commit, completed []string) *Failure {
	var edgeRoom [few]*graph.CompiledEdge
	edges := edgeRoom[:0]
	for _, node := range completed {
		edges = append(edges, m.graph.EdgesFrom(node)...)
	}
	slices.SortFunc(edges, func(a, b *graph.CompiledEdge) int { return strings.Compare(a.ID, b.ID) })
	edges = slices.Compact(edges)
	state := guardState{c.next}
	var firedRoom [few]string
	fired := firedRoom[:0]
	for _, edge := range edges {
		if edge.Barrier() && !c.collect(edge, completed) {
			continue
		}
		ok, err := edge.Eval(state)
		if err != nil {
			return &Failure{
				Code: CodeGuard, Details: about("edge", edge.ID),
				Message: fmt.Sprintf("the guard of the edge %s: %v", edge.ID, err),
			}
		}
		if !ok {
			continue
		}
		fired = append(fired, edge.ID)
		c.emit(EventEdgeFired).Edge = edge.ID
		if edge.To != graph.Finish {
			c.pend(edge.To)
		}
	}
	c.countEdges(fired)
	c.next.Changed = nil
	return nil
}

// guardState is what a guard sees: the state after the fold, and what changed
// since guards were last evaluated.
type guardState struct{ d *Document }

func (g guardState) Value(name string) value.Value { return g.d.channel(name).Value }
func (g guardState) Changed(name string) bool      { return contains(g.d.Changed, name) }
func (g guardState) Version(name string) int64     { return g.d.channel(name).Version }

// nothingLeft completes a run that has nothing to run and nothing to wait for. A
// start whose guards failed could not be stored as failed, so that is found here.
func (m *Machine) nothingLeft(d *Document, now time.Time) Proposal {
	c := begin(d, now, 2)
	if d.Seq == 1 && len(d.Edges) == 0 {
		if f := m.fire(m.started(d, now), []string{graph.Start}); f != nil {
			return m.fail(d, *f, nil, now)
		}
	}
	p, f := m.complete(c)
	if f == nil {
		f = m.oversized(p)
	}
	if f != nil {
		return m.fail(d, *f, nil, now)
	}
	return p
}

// complete proposes the end of a run that has nothing left to do.
func (m *Machine) complete(c *commit) (Proposal, *Failure) {
	output := m.output(c.next)
	if err := value.Check("the output of the run", len(output), m.limits.Value); err != nil {
		f := tooLarge("", err)
		return Proposal{}, &f
	}
	c.end(Done)
	c.next.Output = output
	c.emit(EventRunCompleted)
	return c.propose(checkpoint.RunCompleted, terminal()), nil
}

// output is the object of the graph's outputs. A field that was never written and
// has no default is left out.
func (m *Machine) output(d *Document) value.Value {
	size := 2
	for _, o := range m.graph.Outputs() {
		size += len(o.Name) + len(d.Value(o.From)) + 4
	}
	b := append(make([]byte, 0, size), '{')
	for _, o := range m.graph.Outputs() {
		v := d.Value(o.From)
		if v == nil {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, o.Name)
		b = append(b, ':')
		b = append(b, v...)
	}
	return append(b, '}')
}
