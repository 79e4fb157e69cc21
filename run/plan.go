package run

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

// Answer is a resolved interrupt as its node is told of it.
type Answer struct {
	Interrupt  string
	Value      value.Value
	ResolvedAt time.Time
}

// Activation is one node to execute.
type Activation struct {
	Node      *graph.CompiledNode
	Task      string    // task id and idempotency key: run:step:node
	AttemptID string    // task:attempt
	Attempt   int       // recorded failures + 1
	Snapshot  []Channel // what the node reads, by node name; absent ones are left out
	PlannedAt time.Time // when the task was first planned, as far as a commit recorded it
	Answers   []Answer  // since the node's last completion, by (resolved-at, id)

	inputHash string // of a parked task
}

// InputHash is the SHA-256, in lower-case hex, of the JSON object of the snapshot. It
// is computed when it is asked for: most activations complete without anybody asking.
func (a *Activation) InputHash() string {
	if a.inputHash != "" {
		return a.inputHash
	}
	return inputHash(a.Snapshot)
}

// Plan is what to do next with a run: exactly one of its fields is set.
type Plan struct {
	// Execute these, by node, then Settle with a result for each.
	Execute []Activation
	// Wake: nothing is due before this instant; there is nothing to commit. The
	// holder of the claim releases it until then.
	Wake time.Time
	// Waiting: nothing will happen without an answer, and the document says so already.
	Waiting bool
	// Commit this without executing anything.
	Commit *Proposal
	// Finished: the run is terminal.
	Finished bool

	seq int64 // of the document that was planned
}

// Plan answers from the committed document alone; the same document gives the same
// tasks, keys and snapshots until something is committed. In this order:
//
//  1. parked tasks that are due: execute those;
//  2. parked tasks, none due: answer an interrupt that is past its deadline, else
//     wake at the earliest timer;
//  3. an interrupt past its deadline: commit its default as the answer;
//  4. nodes to run: execute them, or, when the graph's bound of supersteps is used
//     up, commit the failure;
//  5. only interrupts open: waiting, or wake at the first deadline;
//  6. nothing: commit the completion.
//
// It answers ErrInvalidDocument for a document that this graph cannot have
// produced, and *claim.ArgumentError for a zero now.
func (m *Machine) Plan(d *Document, now time.Time) (Plan, error) {
	now, err := m.accepts(d, now)
	if err != nil {
		return Plan{}, err
	}
	switch {
	case d.Status.Terminal():
		return Plan{Finished: true}, nil
	case d.Status == Waiting:
		return Plan{Waiting: true}, nil
	case d.Status != Running:
		return Plan{}, invalid("run %s has the status %q, which is never stored", d.ID, d.Status)
	}
	if len(d.Tasks) > 0 {
		due, err := m.planParked(d, now)
		if err != nil {
			return Plan{}, err
		}
		if len(due) > 0 {
			return Plan{Execute: due, seq: d.Seq}, nil
		}
	}
	if k, ok := overdue(d, now); ok {
		p := m.expire(d, k, now)
		return Plan{Commit: &p}, nil
	}
	if len(d.Tasks) > 0 {
		return Plan{Wake: earliest(d.Timers)}, nil
	}
	return m.planFresh(d, now)
}

// planParked activates the parked tasks whose timer has come, as they were planned.
func (m *Machine) planParked(d *Document, now time.Time) ([]Activation, error) {
	var out []Activation
	for i := range d.Tasks {
		t := &d.Tasks[i]
		if at, ok := findTimer(d.Timers, TimerTask, t.ID); !ok || !due(at, now) {
			continue
		}
		node := m.graph.Node(t.Node)
		if node == nil {
			return nil, invalid("task %s: the graph has no node %s", t.ID, t.Node)
		}
		out = append(out, Activation{
			Node: node, Task: t.ID, Attempt: t.Failures + 1, AttemptID: attemptID(t.ID, t.Failures+1),
			Snapshot: t.Snapshot, PlannedAt: t.PlannedAt, Answers: answers(d, t.Node), inputHash: t.InputHash,
		})
	}
	return out, nil
}

// planFresh begins a superstep, or finds that there is none to begin.
func (m *Machine) planFresh(d *Document, now time.Time) (Plan, error) {
	askers := d.askers()
	runnable := d.runnable(askers)
	if runnable == 0 {
		switch {
		case len(d.Timers) > 0:
			return Plan{Wake: earliest(d.Timers)}, nil
		case len(d.Pending) > 0:
			return Plan{}, invalid("run %s is running, but has only open interrupts without a deadline", d.ID)
		}
		p := m.nothingLeft(d, now)
		return Plan{Commit: &p}, nil
	}
	if limit := m.graph.MaxSupersteps(); limit > 0 && d.Step > limit {
		p := m.fail(d, Failure{
			Code:    CodeSupersteps,
			Message: fmt.Sprintf("the run needs more than %d supersteps: raise policies.max_supersteps, or let a guard end the cycle", limit),
		}, nil, now)
		return Plan{Commit: &p}, nil
	}
	out := make([]Activation, 0, runnable)
	for _, name := range d.Pending {
		if contains(askers, name) {
			continue
		}
		node := m.graph.Node(name)
		if node == nil {
			return Plan{}, invalid("run %s: the graph has no node %s, which is pending", d.ID, name)
		}
		a := Activation{
			Node: node, Attempt: 1, Snapshot: snapshot(d, node), PlannedAt: now, Answers: answers(d, name),
		}
		a.Task, a.AttemptID = firstAttempt(d.ID, d.Step, d.taskName(name))
		out = append(out, a)
	}
	return Plan{Execute: out, seq: d.Seq}, nil
}

// snapshot is what a node reads of the committed state, by its own names.
func snapshot(d *Document, node *graph.CompiledNode) []Channel {
	var out []Channel
	for _, r := range node.Reads {
		if c := d.channel(r.State); c.Value != nil {
			if out == nil {
				out = make([]Channel, 0, len(node.Reads))
			}
			out = append(out, Channel{Name: r.Name, Value: c.Value, Version: c.Version})
		}
	}
	return out
}

// answers lists what a node is told: every attempt until it completes.
func answers(d *Document, node string) []Answer {
	var out []Answer
	for k := range d.Interrupts {
		if i := &d.Interrupts[k]; i.Node == node && i.Answer != nil {
			out = append(out, Answer{Interrupt: i.ID, Value: i.Answer, ResolvedAt: i.ResolvedAt})
		}
	}
	slices.SortFunc(out, func(a, b Answer) int {
		return cmp.Or(a.ResolvedAt.Compare(b.ResolvedAt), strings.Compare(a.Interrupt, b.Interrupt))
	})
	return out
}

// overdue is the open interrupt whose deadline passed first, by id among equals.
func overdue(d *Document, now time.Time) (k int, ok bool) {
	for i := range d.Interrupts {
		q := &d.Interrupts[i]
		if q.Status != InterruptOpen || q.Deadline.IsZero() || !due(q.Deadline, now) {
			continue
		}
		if !ok || q.Deadline.Before(d.Interrupts[k].Deadline) {
			k, ok = i, true
		}
	}
	return k, ok
}
