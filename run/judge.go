package run

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

// verdict is what one result comes to: a permanent failure, a parked task, a
// write, or a question. Exactly one of failure, task, ask and wrote is set.
type verdict struct {
	activation *Activation
	failure    *Failure
	task       *Task
	wake       time.Time // when the task is due again
	retry      *Failure  // why the task parked, when it failed
	wrote      bool
	write      Write
	ask        *Interrupt
}

// tell fills in the node's event. For a question it is the interrupt's.
func (v *verdict) tell(e *Event) {
	if v.ask != nil {
		v.ask.tell(e)
		return
	}
	e.Node, e.Task, e.Attempt, e.Wake = v.activation.Node.ID, v.activation.Task, v.activation.Attempt, v.wake
	switch {
	case v.failure != nil:
		e.Type, e.Failure = EventNodeFailed, v.failure
	case v.retry != nil:
		e.Type, e.Failure = EventNodeFailed, v.retry
	case v.task != nil:
		e.Type = EventNodeSnoozed
	case v.wrote && v.write.Skipped:
		e.Type, e.Reason = EventNodeSkipped, v.write.Reason
	default:
		e.Type = EventNodeCompleted
	}
}

// tell fills in the event of a question.
func (i *Interrupt) tell(e *Event) {
	e.Type, e.Node, e.Interrupt, e.Field, e.Wake, e.Data = EventInterruptRequested, i.Node, i.ID, i.Field, i.Deadline, i.Question
}

// judge decides what one result comes to, on its own, into a zero verdict.
func (s *superstep) judge(v *verdict, a *Activation, r *Result) {
	v.activation = a
	node := a.Node.ID
	switch r.kind {
	case ResultCompleted:
		v.write, v.failure = s.judgeUpdate(a.Node, r.update)
		v.wrote = v.failure == nil
	case ResultSkipped:
		if len(r.reason) > MaxText {
			f := overlong(node, "reason of the skip", r.reason, "")
			v.failure = &f
			break
		}
		v.wrote, v.write = true, Write{Node: node, Skipped: true, Reason: storable(r.reason)}
	case ResultSnoozed:
		v.task, v.wake = s.park(a, ParkSnooze), later(instant(r.until), s.now)
	case ResultAsked:
		v.ask, v.failure = s.judgeQuestion(a, r.question)
	case ResultRetry:
		f, whole := settled(node, *r.failure)
		if !whole || a.Attempt >= a.Node.Retry.MaxAttempts {
			v.failure = &f
			break
		}
		v.retry, v.task = &f, s.park(a, ParkRetry)
		v.task.Failures, v.task.LastError = a.Attempt, f.Message
		v.wake = later(after(s.now, backoff(a.Node.Retry.Backoff, a.Attempt, a.AttemptID)), instant(r.until))
	default:
		f, _ := settled(node, *r.failure)
		v.failure = &f
	}
	if err := s.fitsFact(v); err != nil {
		f := tooLarge(node, err)
		*v = verdict{activation: a, failure: &f}
	}
}

// fitsFact checks the size of the event that the verdict becomes, if the node has a
// say in it. (The rest is checked with the whole proposal, where no node is named.)
func (s *superstep) fitsFact(v *verdict) error {
	if v.wrote && !v.write.Skipped || v.task != nil && v.retry == nil {
		return nil
	}
	// Sequence and time take no more room than these.
	e := Event{Run: s.from.ID, Seq: s.from.EventSeq + int64(len(s.verdicts)) + 1, At: s.now, Step: s.from.Step}
	v.tell(&e)
	return CheckEventSize(&e, s.machine.limits.EventPayload)
}

// park is the task as it stands after this attempt: only a failure counts.
func (s *superstep) park(a *Activation, why ParkReason) *Task {
	t := &Task{
		ID: a.Task, Node: a.Node.ID, Failures: a.Attempt - 1, Snapshot: a.Snapshot,
		InputHash: a.InputHash(), PlannedAt: a.PlannedAt, Reason: why,
	}
	if i, ok := findTask(s.from.Tasks, a.Node.ID); ok {
		t.LastError = s.from.Tasks[i].LastError
	}
	return t
}

// judgeUpdate checks an update: only declared names, values within the limit, and
// each a write that its field takes.
func (s *superstep) judgeUpdate(node *graph.CompiledNode, update map[string]value.Value) (Write, *Failure) {
	w := Write{Node: node.ID}
	declared := 0
	for _, b := range node.Writes {
		v, ok := update[b.Name]
		if !ok {
			continue
		}
		declared++
		if v == nil {
			continue
		}
		if len(v) > s.machine.limits.Value {
			f := tooLarge(node.ID, value.Check("the value that node "+node.ID+" writes to "+b.State, len(v), s.machine.limits.Value))
			return Write{}, &f
		}
		if err := s.machine.graph.Channel(b.State).CheckWrite(v); err != nil {
			return Write{}, &Failure{
				Code: CodeInvalidUpdate, Node: node.ID, Details: about("field", b.State),
				Message: fmt.Sprintf("the write of %q to the field %s: %v", b.Name, b.State, err),
			}
		}
		w.Update = append(w.Update, Channel{Name: b.State, Value: v})
	}
	if declared < len(update) {
		return Write{}, undeclared(node, update)
	}
	slices.SortFunc(w.Update, func(a, b Channel) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(w.Update); i++ {
		if w.Update[i-1].Name == w.Update[i].Name {
			return Write{}, &Failure{
				Code: CodeInvalidUpdate, Node: node.ID, Details: about("field", w.Update[i].Name),
				Message: fmt.Sprintf("the node writes the field %s under two names at once", w.Update[i].Name),
			}
		}
	}
	return w, nil
}

func undeclared(node *graph.CompiledNode, update map[string]value.Value) *Failure {
	for _, name := range slices.Sorted(maps.Keys(update)) {
		if _, ok := binding(node.Writes, name); ok {
			continue
		}
		shown := storable(name)
		if len(shown) > claim.MaxID {
			shown = "a name of " + fmt.Sprint(len(name)) + " bytes"
		}
		return &Failure{
			Code: CodeInvalidUpdate, Node: node.ID,
			Message: fmt.Sprintf("the update names %q, which the node does not declare: list it under the node's writes", shown),
		}
	}
	return nil
}

func binding(bs []graph.Binding, name string) (graph.Binding, bool) {
	i := slices.IndexFunc(bs, func(b graph.Binding) bool { return b.Name == name })
	if i < 0 {
		return graph.Binding{}, false
	}
	return bs[i], true
}

// judgeQuestion checks a question and makes the open interrupt.
func (s *superstep) judgeQuestion(a *Activation, q *Question) (*Interrupt, *Failure) {
	node := a.Node
	refuse := func(format string, args ...any) (*Interrupt, *Failure) {
		return nil, &Failure{Code: CodeInvalidAsk, Node: node.ID, Message: fmt.Sprintf(format, args...)}
	}
	i := &Interrupt{
		ID: cmp.Or(q.ID, a.Task), Node: node.ID, Question: q.Prompt, Schema: q.Schema,
		Deadline: instant(q.Deadline), Status: InterruptOpen, RequestedAt: s.now,
	}
	if q.ID != "" {
		if err := claim.CheckID("interrupt id", q.ID); err != nil {
			return refuse("%v", err)
		}
	}
	if _, taken := findInterrupt(s.from.Interrupts, i.ID); taken {
		return refuse("the interrupt id %s is taken: ask under an id that the run has not used, or under none", i.ID)
	}
	if q.Field != "" {
		b, ok := binding(node.Writes, q.Field)
		if !ok {
			return refuse("the answer is to be written to %q, which the node does not declare: list it under the node's writes", storable(q.Field[:min(len(q.Field), claim.MaxID)]))
		}
		i.Field = b.State
	}
	switch {
	case !i.Deadline.IsZero():
		if i.Default = q.Default; i.Default == nil {
			i.Default = value.Null()
		}
	case q.Default != nil:
		return refuse("a default answers at a deadline, and there is none: set a deadline, or leave the default out")
	}
	for _, part := range []struct {
		what string
		v    value.Value
	}{{"question", i.Question}, {"schema", i.Schema}, {"default", i.Default}} {
		if err := value.Check("the "+part.what+" that node "+node.ID+" asks with", len(part.v), s.machine.limits.Value); err != nil {
			f := tooLarge(node.ID, err)
			return nil, &f
		}
		if part.v == nil {
			continue
		}
		if _, err := value.Canonical(part.v); err != nil {
			return refuse("the %s: %v", part.what, err)
		}
	}
	if _, err := s.machine.answerSchema(i); err != nil {
		return refuse("the schema: %v", err)
	}
	if i.Default != nil {
		if err := s.machine.checkAnswer(s.from, i, i.Default); err != nil {
			return refuse("the default answer: %v", err)
		}
	}
	return i, nil
}

// refuseTwins turns questions that share an id within the superstep into failures,
// all of them: none has a better right to it.
func (s *superstep) refuseTwins() {
	asked := s.asked()
	for i := range asked {
		if (i == 0 || asked[i-1].ID != asked[i].ID) && (i+1 == len(asked) || asked[i+1].ID != asked[i].ID) {
			continue
		}
		k, _ := slices.BinarySearchFunc(s.verdicts, asked[i].Node, func(v verdict, node string) int { return strings.Compare(v.activation.Node.ID, node) })
		s.verdicts[k] = verdict{activation: s.verdicts[k].activation, failure: &Failure{
			Code: CodeInvalidAsk, Node: asked[i].Node,
			Message: fmt.Sprintf("another node asks under the interrupt id %s in the same superstep: let each ask under an id of its own, or under none", asked[i].ID),
		}}
	}
}
