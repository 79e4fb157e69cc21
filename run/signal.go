package run

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/value"
)

// Resolve answers an open interrupt. The answer is written at once through its
// field's reducer, and told to the interrupt's node, which runs again in the next
// superstep. Parked tasks keep their snapshots, and the run wakes no earlier for
// the answer than their earliest timer; otherwise it is due at once.
//
// In this order: ErrInactiveRun, ErrNoInterrupt, ErrAlreadyResolved, and
// ErrInvalidAnswer (which also matches value.ErrTooLarge when that is why).
func (m *Machine) Resolve(d *Document, interrupt string, answer value.Value, now time.Time) (Proposal, error) {
	now, err := m.accepts(d, now)
	if err != nil {
		return Proposal{}, err
	}
	if d.Status.Terminal() {
		return Proposal{}, fmt.Errorf("%w: run %s is %s", ErrInactiveRun, d.ID, d.Status)
	}
	k, ok := findInterrupt(d.Interrupts, interrupt)
	if !ok {
		return Proposal{}, fmt.Errorf("%w: run %s has none of the id %q, %s", ErrNoInterrupt, d.ID, interrupt, whichOpen(d))
	}
	q := &d.Interrupts[k]
	if q.Status != InterruptOpen {
		return Proposal{}, fmt.Errorf("%w: interrupt %s of run %s, at %s", ErrAlreadyResolved, q.ID, d.ID, q.ResolvedAt.Format(time.RFC3339))
	}
	refuse := func(err error) (Proposal, error) {
		return Proposal{}, fmt.Errorf("%w: interrupt %s of run %s: %w", ErrInvalidAnswer, q.ID, d.ID, err)
	}
	if answer == nil {
		return refuse(&value.Error{Reason: "there is no value: answer with null if that is meant"})
	}
	if answer, err = value.Parse(answer); err != nil {
		return refuse(err)
	}
	if err := m.checkAnswer(d, q, answer); err != nil {
		return refuse(err)
	}
	c, err := m.resolve(d, k, answer, "", now)
	if err != nil {
		return refuse(err)
	}
	schedule := checkpoint.Schedule{Kind: checkpoint.ReleaseNow}
	if len(d.Tasks) > 0 {
		schedule = releaseAt(earliest(c.next.Timers))
	}
	p := c.propose(checkpoint.InterruptResolved, schedule)
	if err := m.fitsGoing(p); err != nil {
		return refuse(err)
	}
	return p, nil
}

// whichOpen tells what could be answered instead.
func whichOpen(d *Document) string {
	const most = 5
	var ids []string
	open := d.OpenInterrupts()
	for _, i := range open[:min(len(open), most)] {
		ids = append(ids, i.ID+" (of node "+i.Node+")")
	}
	switch {
	case len(open) == 0:
		return "and none is open"
	case len(open) > most:
		ids = append(ids, fmt.Sprintf("%d more", len(open)-most))
	}
	return "open is " + strings.Join(ids, ", ")
}

// expire proposes the default as the answer of an interrupt past its deadline.
func (m *Machine) expire(d *Document, k int, now time.Time) Proposal {
	q := &d.Interrupts[k]
	answer := q.Default
	if answer == nil {
		answer = value.Null()
	}
	c, err := m.resolve(d, k, answer, reasonDeadline, now)
	if err != nil {
		// The field has changed since the default was found to fit.
		f := foldFailure(q.Field, err)
		f.Node = q.Node
		return m.fail(d, f, nil, now)
	}
	schedule := checkpoint.Schedule{Kind: checkpoint.Retain}
	if wake := earliest(c.next.Timers); len(d.Tasks) > 0 && !due(wake, now) {
		schedule = releaseAt(wake)
	}
	p := c.propose(checkpoint.InterruptResolved, schedule)
	if f := m.oversized(p); f != nil {
		return m.fail(d, *f, nil, now)
	}
	return p
}

// reasonDeadline is the reason of an interrupt_resolved event that no person caused.
const reasonDeadline = "deadline"

// resolve stores and writes an answer.
func (m *Machine) resolve(d *Document, k int, answer value.Value, reason string, now time.Time) (*commit, error) {
	c := begin(d, now, 3)
	q := &c.interrupts()[k]
	if q.Field != "" {
		old := c.next.channel(q.Field)
		v, err := m.folded(old, q.Field, []value.Value{answer})
		if err != nil {
			return nil, err
		}
		c.set(Channel{Name: q.Field, Value: v, Version: old.Version + 1})
		e := c.emit(EventStateUpdated)
		e.Field, e.Version = q.Field, old.Version+1
	}
	q.Status, q.Answer, q.ResolvedAt = InterruptResolved, answer, now
	if i, ok := slices.BinarySearchFunc(d.Timers, Timer{Kind: TimerInterrupt, Key: q.ID}, compareTimers); ok {
		c.next.Timers = slices.Concat(d.Timers[:i], d.Timers[i+1:])
		if len(c.next.Timers) == 0 {
			c.next.Timers = nil
		}
	}
	c.next.Status = Running
	e := c.emit(EventInterruptResolved)
	e.Node, e.Interrupt, e.Field, e.Reason = q.Node, q.ID, q.Field, reason
	return c, nil
}

// answerSchema compiles the interrupt's schema; nil when it admits any answer.
func (m *Machine) answerSchema(q *Interrupt) (*value.Schema, error) {
	if q.Schema == nil {
		return nil, nil
	}
	return value.CompileSchema(q.Schema, m.defs)
}

// checkAnswer checks an answer against the limit, the interrupt's schema, and the
// field that it is written to.
func (m *Machine) checkAnswer(d *Document, q *Interrupt, answer value.Value) error {
	if err := value.Check("the answer", len(answer), m.limits.Value); err != nil {
		return err
	}
	schema, err := m.answerSchema(q)
	if err != nil {
		return err
	}
	if schema != nil {
		if err := schema.Validate(answer); err != nil {
			return err
		}
	}
	if q.Field == "" {
		return nil
	}
	channel := m.graph.Channel(q.Field)
	if channel == nil {
		return invalid("the graph has no field %s", q.Field)
	}
	if err := channel.CheckWrite(answer); err != nil {
		return err
	}
	_, err = m.folded(d.channel(q.Field), q.Field, []value.Value{answer})
	return err
}

// Cancel ends a run, whatever it was doing, and closes its open interrupts. It
// needs no graph. changed is false (and nothing proposed) when the run is already
// cancelled; other terminal runs answer ErrInactiveRun. A reason over MaxReason
// bytes is *claim.ArgumentError; bytes in it that are not UTF-8 become U+FFFD.
func Cancel(d *Document, reason string, now time.Time) (p Proposal, changed bool, err error) {
	if d == nil {
		return p, false, invalid("it is nil")
	}
	if now, err = checkNow(now); err != nil {
		return p, false, err
	}
	if reason = storable(reason); len(reason) > MaxReason {
		return p, false, &claim.ArgumentError{Argument: "reason", Reason: fmt.Sprintf("has %d bytes, the limit is %d: shorten it", len(reason), MaxReason)}
	}
	switch {
	case d.Status == Cancelled:
		return p, false, nil
	case d.Status.Terminal():
		return p, false, fmt.Errorf("%w: run %s is %s", ErrInactiveRun, d.ID, d.Status)
	case !CanMove(d.Status, Cancelled):
		return p, false, invalid("run %s has the status %q, which is never stored", d.ID, d.Status)
	}
	c := begin(d, now, 3)
	c.end(Cancelled)
	c.next.Reason = reason
	c.emit(EventRunCancelled).Reason = reason
	return c.propose(checkpoint.RunCancelled, terminal()), true, nil
}
