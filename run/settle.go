package run

import (
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/checkpoint"
)

// Settle turns the results of a plan's activations, in any order, one each, into
// the next commit. It answers *ResultsError, and settles nothing, when the plan is
// not this document's or the results are not those of its activations. Whatever a
// node answered is settled, never an error: an answer that cannot be accepted
// fails the run.
func (m *Machine) Settle(d *Document, plan Plan, results []Result, now time.Time) (Proposal, error) {
	now, err := m.accepts(d, now)
	if err != nil {
		return Proposal{}, err
	}
	results, err = match(d, &plan, results)
	if err != nil {
		return Proposal{}, err
	}
	s := superstep{machine: m, from: d, now: now, verdicts: make([]verdict, len(results))}
	for i := range results {
		s.judge(&s.verdicts[i], &plan.Execute[i], &results[i])
	}
	s.refuseTwins()
	if p, over := s.failure(); over {
		return p, nil
	}
	p, failure := s.commit()
	if failure == nil {
		failure = m.oversized(p)
	}
	if failure != nil {
		return m.fail(d, *failure, s.blamed(failure), now), nil
	}
	return p, nil
}

// match checks plan and results, and brings the results into the plan's order.
func match(d *Document, plan *Plan, results []Result) ([]Result, error) {
	execute, askers := plan.Execute, d.askers()
	switch {
	case d.Status != Running:
		return nil, &ResultsError{Reason: "the run is " + string(d.Status) + ", so nothing was planned"}
	case len(execute) == 0:
		return nil, &ResultsError{Reason: "the plan executes nothing"}
	case plan.seq != d.Seq, len(d.Tasks) == 0 && len(execute) != d.runnable(askers):
		return nil, &ResultsError{Reason: "the plan is not one of this document: plan again"}
	}
	for i := range execute {
		a := &execute[i]
		switch {
		case a.Node == nil:
			return nil, &ResultsError{Reason: "an activation names no node"}
		case i > 0 && execute[i-1].Node.ID >= a.Node.ID:
			return nil, &ResultsError{Node: a.Node.ID, Reason: "the plan is not sorted by node, or has it twice"}
		case !planned(d, a, askers):
			return nil, &ResultsError{Node: a.Node.ID, Reason: "the plan is not one of this document: plan again"}
		}
	}
	if !slices.IsSortedFunc(results, compareResults) {
		results = slices.Clone(results)
		slices.SortStableFunc(results, compareResults)
	}
	next := 0
	for i := range results {
		r := &results[i]
		if i > 0 && results[i-1].Node == r.Node {
			return nil, &ResultsError{Node: r.Node, Reason: "it has two results"}
		}
		if next < len(execute) && execute[next].Node.ID < r.Node {
			return nil, &ResultsError{Node: execute[next].Node.ID, Reason: "its result is missing"}
		}
		if next == len(execute) || execute[next].Node.ID != r.Node {
			return nil, &ResultsError{Node: r.Node, Reason: "it has a result, but was not planned"}
		}
		if r.kind == 0 {
			return nil, &ResultsError{Node: r.Node, Reason: "its result is the zero Result: make it with a constructor"}
		}
		next++
	}
	if next < len(execute) {
		return nil, &ResultsError{Node: execute[next].Node.ID, Reason: "its result is missing"}
	}
	return results, nil
}

// planned reports whether the document would plan this activation.
func planned(d *Document, a *Activation, askers []string) bool {
	if !isTaskID(a.Task, d.ID, d.Step, d.taskName(a.Node.ID)) {
		return false
	}
	if len(d.Tasks) == 0 {
		return a.Attempt == 1 && contains(d.Pending, a.Node.ID) && !contains(askers, a.Node.ID)
	}
	i, ok := findTask(d.Tasks, a.Node.ID)
	return ok && d.Tasks[i].Failures+1 == a.Attempt
}

func compareResults(a, b Result) int { return strings.Compare(a.Node, b.Node) }

// superstep is one settling: what each result comes to, by node.
type superstep struct {
	machine  *Machine
	from     *Document
	now      time.Time
	verdicts []verdict
}

// failure proposes the end of the run if a verdict is one: the first by node
// decides, and each gets its event.
func (s *superstep) failure() (p Proposal, over bool) {
	var failed []verdict
	for i := range s.verdicts {
		if s.verdicts[i].failure != nil {
			failed = append(failed, s.verdicts[i])
		}
	}
	if len(failed) == 0 {
		return Proposal{}, false
	}
	return s.machine.fail(s.from, *failed[0].failure, failed, s.now), true
}

// blamed is the node that a failure of the whole superstep names, if its result is one
// of this commit's: otherwise its fact was told before.
func (s *superstep) blamed(f *Failure) []verdict {
	for i := range s.verdicts {
		if a := s.verdicts[i].activation; a.Node.ID == f.Node {
			return []verdict{{activation: a, failure: f}}
		}
	}
	return nil
}

// commit parks the superstep, or passes its barrier when nothing is left parked.
func (s *superstep) commit() (Proposal, *Failure) {
	c := begin(s.from, s.now, s.events())
	c.next.Pending = s.stillPending()
	asked := s.asked()
	c.ask(asked)
	tasks, timers := s.stillParked()
	var room [few]Write
	writes := append(room[:0], s.from.Writes...)
	kind := checkpoint.StepCommitted
	for i := range s.verdicts {
		v := &s.verdicts[i]
		switch {
		case v.task != nil:
			tasks = append(tasks, *v.task)
			timers = append(timers, Timer{Kind: TimerTask, Key: v.task.ID, At: v.wake})
			kind = parkType(kind, v)
		case v.wrote:
			writes = append(writes, v.write)
			c.forget(v.write.Node)
		case v.ask != nil:
			if !v.ask.Deadline.IsZero() {
				timers = append(timers, Timer{Kind: TimerInterrupt, Key: v.ask.ID, At: v.ask.Deadline})
			}
			if kind == checkpoint.StepCommitted {
				kind = checkpoint.InterruptRequested
			}
			continue // told among the interrupts
		}
		v.tell(c.emit(""))
	}
	slices.SortFunc(timers, compareTimers)
	slices.SortFunc(writes, func(a, b Write) int { return strings.Compare(a.Node, b.Node) })
	slices.SortFunc(tasks, func(a, b Task) int { return strings.Compare(a.Node, b.Node) })
	c.next.Tasks, c.next.Timers = tasks, timers
	if len(tasks) > 0 {
		c.next.Writes = append([]Write(nil), writes...)
		c.forgetRenamed()
		c.requested(asked)
		return c.propose(kind, releaseAt(earliest(timers))), nil
	}
	c.next.Writes = nil
	return s.barrier(c, writes, asked, kind)
}

// events is at most how many the commit has, unless the run ends with questions open or by a barrier
// of several supersteps: a fact for each result, one for each field written and each edge, the run's, and
// the checkpoint's.
func (s *superstep) events() int {
	n := len(s.verdicts) + 2
	for i := range s.verdicts {
		if v := &s.verdicts[i]; v.wrote {
			n += len(v.write.Update) + len(s.machine.graph.EdgesFrom(v.write.Node))
		}
	}
	return n
}

// parkType: a new failure before a new snooze before a new interrupt.
func parkType(kind checkpoint.Type, v *verdict) checkpoint.Type {
	if v.retry != nil || kind == checkpoint.RetryScheduled {
		return checkpoint.RetryScheduled
	}
	return checkpoint.Snoozed
}

// stillPending is the pending nodes without those that were executed.
func (s *superstep) stillPending() []string {
	if len(s.from.Tasks) > 0 {
		return s.from.Pending // a parked superstep's nodes are tasks
	}
	return s.from.askers() // match has seen that all others were executed
}

// stillParked is the tasks that were not executed, with their timers and those of
// interrupts.
func (s *superstep) stillParked() ([]Task, []Timer) {
	if len(s.from.Timers) == 0 {
		return nil, nil
	}
	settled := make([]string, len(s.verdicts)) // the tasks' ids: renamed nodes have them in another order
	for i := range s.verdicts {
		settled[i] = s.verdicts[i].activation.Task
	}
	slices.Sort(settled)
	executed := func(task string) bool { return contains(settled, task) }
	var tasks []Task
	for i := range s.from.Tasks {
		if !executed(s.from.Tasks[i].ID) {
			tasks = append(tasks, s.from.Tasks[i])
		}
	}
	var timers []Timer
	for _, t := range s.from.Timers {
		if t.Kind != TimerTask || !executed(t.Key) {
			timers = append(timers, t)
		}
	}
	return tasks, timers
}

// asked are the questions of this commit, by interrupt id.
func (s *superstep) asked() []*Interrupt {
	var asked []*Interrupt
	for i := range s.verdicts {
		if q := s.verdicts[i].ask; q != nil {
			asked = append(asked, q)
		}
	}
	slices.SortFunc(asked, func(a, b *Interrupt) int { return strings.Compare(a.ID, b.ID) })
	return asked
}
