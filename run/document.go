// Package run is the run document and the pure machine that turns it into the
// next commit. Nothing here reads a clock, draws randomness or does I/O: the same
// document, results and now always propose the same commit, byte for byte.
//
// A run advances in supersteps. Plan says from the committed document alone what
// is to be done; whoever holds the run's claim executes it; Settle turns the
// results into a Proposal, which a backend applies if its fence still matches:
//
//	plan, err := machine.Plan(document, now)
//	// execute plan.Execute, collect a Result for each activation
//	proposal, err := machine.Settle(document, plan, results, now)
//
// Resolve and Cancel are the signals from outside. They propose in the same way.
package run

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

// Document is everything graph execution knows of one run. A document that was
// committed or proposed is immutable: the machine copies what it changes, and
// shares the rest. Slices are sorted by their key, so that encoding is
// deterministic without sorting. All instants are UTC in whole microseconds; the
// zero time means none.
type Document struct {
	ID                               string
	Graph                            graph.Ref
	Lineage                          []Ancestor // graph versions that it was migrated away from; by sequence
	Status                           Status
	Step                             int64       // the superstep being planned or parked; 1 at initialization
	Input                            []Channel   // by name; version 1 when given at the start, 0 for a default
	State                            []Channel   // fields by name; version 0 is a default never written
	Output                           value.Value // a JSON object; only when done
	Failure                          *Failure    // exactly when failed
	Reason                           string      // why it was cancelled; only when cancelled
	Edges                            []EdgeCount // how often each edge fired; by id; only fired ones
	Barriers                         []Barrier   // collected sources of barrier edges; by edge id; only non-empty ones
	Changed                          []string    // names written since the guards were last evaluated; sorted
	Pending                          []string    // nodes to run next, those with an open interrupt included; sorted
	Renamed                          []Renaming  // nodes that a migration renamed within this superstep; by node
	Completed                        []NodeCount // completions per node, skips included; by node
	Tasks                            []Task      // parked attempts; by node
	Writes                           []Write     // results of finished siblings of parked tasks; by node
	Timers                           []Timer     // by (kind, key)
	Interrupts                       []Interrupt // by id
	Seq                              int64       // checkpoint sequence
	EventSeq                         int64       // last event sequence
	StartedAt, UpdatedAt, FinishedAt time.Time
	Metadata                         map[string]string
}

// Ancestor is a version of the run's graph that the run was migrated away from.
type Ancestor struct {
	Hash  string
	Until int64 // the checkpoint sequence of the migration
}

// Renaming is a node whose superstep began under another name. Until the barrier its
// task is named after that one, since the task's id is the idempotency key of what an
// attempt may have done already.
type Renaming struct {
	Node, Was string
}

// Channel is one state name's value.
type Channel struct {
	Name    string
	Value   value.Value
	Version int64 // counts the commits that wrote it
}

// Failure is why a run failed, or why an attempt of a node did.
type Failure struct {
	Code    string      `json:"code"`
	Message string      `json:"message"`
	Node    string      `json:"node,omitempty"`
	Details value.Value `json:"details,omitempty"`
}

// EdgeCount counts how often an edge fired.
type EdgeCount struct {
	Edge  string
	Fired int64
}

// NodeCount counts a node's completions.
type NodeCount struct {
	Node  string
	Count int64
}

// Barrier is the progress of a barrier edge.
type Barrier struct {
	Edge    string
	Sources []string // completed ones, sorted
}

// ParkReason is why a task parked.
type ParkReason string

// The park reasons.
const (
	ParkRetry  ParkReason = "retry"
	ParkSnooze ParkReason = "snooze"
)

// Task is a parked attempt. Its id is run:step:node, which is also the
// idempotency key of every attempt; the node as it was called when the superstep
// began.
type Task struct {
	ID        string
	Node      string
	Failures  int // recorded failures; the next attempt is Failures + 1
	LastError string
	Snapshot  []Channel // what the node reads, by node name; versions are the sources'
	InputHash string    // SHA-256 of the JSON object of the snapshot, lower-case hex
	PlannedAt time.Time // when the task was first planned
	Reason    ParkReason
}

// Write is the result of a finished sibling while its superstep is parked:
// an update, or a skip with its reason. Nobody sees it before the barrier.
type Write struct {
	Node    string
	Update  []Channel // by state name; versions 0
	Skipped bool
	Reason  string
}

// TimerKind separates the key spaces of timers.
type TimerKind string

// The timer kinds.
const (
	TimerInterrupt TimerKind = "interrupt" // key: interrupt id
	TimerTask      TimerKind = "task"      // key: task id
)

// Timer is one instant at which the run must be looked at again.
type Timer struct {
	Kind TimerKind
	Key  string
	At   time.Time
}

// InterruptStatus is open, resolved or closed.
type InterruptStatus string

// The interrupt statuses.
const (
	InterruptOpen     InterruptStatus = "open"
	InterruptResolved InterruptStatus = "resolved"
	InterruptClosed   InterruptStatus = "closed"
)

// Interrupt is a question to the outside, and its answer. What was asked and
// answered is kept until the node's next completion; id, node, status and times
// stay for good, so that an id is never used twice in a run.
type Interrupt struct {
	ID          string
	Node        string
	Question    value.Value // what a person is shown; any JSON
	Field       string      // the state name written with the answer; empty: the answer is only told
	Schema      value.Value // of the answer; nil: any
	Deadline    time.Time   // zero: none
	Default     value.Value // answer at the deadline; only with one
	Status      InterruptStatus
	Answer      value.Value // only when resolved, until the node's next completion
	RequestedAt time.Time
	ResolvedAt  time.Time // exactly when resolved
}

// OpenInterrupts lists the open interrupts, by id.
func (d *Document) OpenInterrupts() []Interrupt {
	var open []Interrupt
	for _, i := range d.Interrupts {
		if i.Status == InterruptOpen {
			open = append(open, i)
		}
	}
	return open
}

// Interrupt is the interrupt of that id.
func (d *Document) Interrupt(id string) (Interrupt, bool) {
	i, ok := findInterrupt(d.Interrupts, id)
	if !ok {
		return Interrupt{}, false
	}
	return d.Interrupts[i], true
}

// NeedsAnswer reports that nothing more will happen without an answer: the run
// is waiting, or running with only interrupts open (with deadlines).
func (d *Document) NeedsAnswer() bool {
	if d.Status == Waiting {
		return true
	}
	return d.Status == Running && d.onlyInterruptsOpen()
}

// onlyInterruptsOpen: something is asked and nothing else can run.
func (d *Document) onlyInterruptsOpen() bool {
	if len(d.Tasks) > 0 {
		return false
	}
	askers := d.askers()
	return len(askers) > 0 && d.runnable(askers) == 0
}

// askers are the nodes with an open interrupt, sorted.
func (d *Document) askers() []string {
	var nodes []string
	for k := range d.Interrupts {
		if d.Interrupts[k].Status == InterruptOpen {
			nodes = append(nodes, d.Interrupts[k].Node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// runnable counts the pending nodes that are not among the askers.
func (d *Document) runnable(askers []string) (n int) {
	if len(askers) == 0 {
		return len(d.Pending)
	}
	for _, node := range d.Pending {
		if !contains(askers, node) {
			n++
		}
	}
	return n
}

// taskName is the node's part of its task's id in this superstep.
func (d *Document) taskName(node string) string {
	if len(d.Renamed) > 0 {
		if i, ok := findRenaming(d.Renamed, node); ok {
			return d.Renamed[i].Was
		}
	}
	return node
}

// Value is the value of a state name (input or field), nil when never written
// and without a default. It is shared with the document: do not modify it.
func (d *Document) Value(name string) value.Value { return d.channel(name).Value }

// channel is the zero Channel for a name without a value.
func (d *Document) channel(name string) Channel {
	if i, ok := findChannel(d.State, name); ok {
		return d.State[i]
	}
	if i, ok := findChannel(d.Input, name); ok {
		return d.Input[i]
	}
	return Channel{}
}

// Progress is the run's progress, for drawing its graph.
func (d *Document) Progress() *graph.Progress {
	p := &graph.Progress{Nodes: map[string]graph.Activity{}, Edges: map[string]int64{}}
	for _, c := range d.Completed {
		p.Nodes[c.Node] = graph.Done
	}
	for _, w := range d.Writes {
		p.Nodes[w.Node] = graph.Done
	}
	for _, node := range d.Pending {
		p.Nodes[node] = graph.Active
	}
	for _, t := range d.Tasks {
		p.Nodes[t.Node] = graph.Parked
	}
	for _, i := range d.Interrupts {
		if i.Status == InterruptOpen {
			p.Nodes[i.Node] = graph.Asking
		}
	}
	if d.Failure != nil && d.Failure.Node != "" {
		p.Nodes[d.Failure.Node] = graph.Broken
	}
	for _, e := range d.Edges {
		p.Edges[e.Edge] = e.Fired
	}
	return p
}

func findChannel(cs []Channel, name string) (int, bool) {
	return slices.BinarySearchFunc(cs, name, func(c Channel, name string) int { return strings.Compare(c.Name, name) })
}

func findInterrupt(is []Interrupt, id string) (int, bool) {
	return slices.BinarySearchFunc(is, id, func(i Interrupt, id string) int { return strings.Compare(i.ID, id) })
}

func findRenaming(rs []Renaming, node string) (int, bool) {
	return slices.BinarySearchFunc(rs, node, func(r Renaming, node string) int { return strings.Compare(r.Node, node) })
}

func findTask(ts []Task, node string) (int, bool) {
	return slices.BinarySearchFunc(ts, node, func(t Task, node string) int { return strings.Compare(t.Node, node) })
}

func findTimer(ts []Timer, kind TimerKind, key string) (time.Time, bool) {
	i, ok := slices.BinarySearchFunc(ts, Timer{Kind: kind, Key: key}, compareTimers)
	if !ok {
		return time.Time{}, false
	}
	return ts[i].At, true
}

func contains(sorted []string, name string) bool {
	_, ok := slices.BinarySearch(sorted, name)
	return ok
}

func compareTimers(a, b Timer) int {
	if c := strings.Compare(string(a.Kind), string(b.Kind)); c != 0 {
		return c
	}
	return cmp.Compare(a.Key, b.Key)
}
