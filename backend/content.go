package backend

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// normalDocument is d with every instant normalized (clause A2): d itself when they
// are, which is how the machine makes it.
func normalDocument(d *run.Document) *run.Document {
	if isNormal(d) {
		return d
	}
	n := *d
	n.StartedAt = claim.Instant(d.StartedAt)
	n.UpdatedAt = claim.Instant(d.UpdatedAt)
	n.FinishedAt = claim.Instant(d.FinishedAt)
	n.Tasks = slices.Clone(d.Tasks)
	for i := range n.Tasks {
		n.Tasks[i].PlannedAt = claim.Instant(n.Tasks[i].PlannedAt)
	}
	n.Timers = slices.Clone(d.Timers)
	for i := range n.Timers {
		n.Timers[i].At = claim.Instant(n.Timers[i].At)
	}
	n.Interrupts = slices.Clone(d.Interrupts)
	for i := range n.Interrupts {
		in := &n.Interrupts[i]
		in.Deadline = claim.Instant(in.Deadline)
		in.RequestedAt = claim.Instant(in.RequestedAt)
		in.ResolvedAt = claim.Instant(in.ResolvedAt)
	}
	return &n
}

func isNormal(d *run.Document) bool {
	if !isInstant(d.StartedAt) || !isInstant(d.UpdatedAt) || !isInstant(d.FinishedAt) {
		return false
	}
	for i := range d.Tasks {
		if !isInstant(d.Tasks[i].PlannedAt) {
			return false
		}
	}
	for i := range d.Timers {
		if !isInstant(d.Timers[i].At) {
			return false
		}
	}
	for i := range d.Interrupts {
		in := &d.Interrupts[i]
		if !isInstant(in.Deadline) || !isInstant(in.RequestedAt) || !isInstant(in.ResolvedAt) {
			return false
		}
	}
	return true
}

// isInstant reports whether t is claim.Instant(t), in its representation too: another
// location and a monotonic reading are to be normalized away as well.
func isInstant(t time.Time) bool { return t.Nanosecond()%1000 == 0 && t == t.UTC() }

// checkEvents checks the events of a proposal: of this run, each one fit to be stored,
// not too large. Equal ones under one sequence collapse, unequal ones are
// ErrEventConflict. The answer is in order of the sequences, normalized, and the given
// slice where nothing had to be changed.
func checkEvents(kind error, id string, events []run.Event, limits value.Limits) ([]run.Event, error) {
	events = normalEvents(events)
	ordered := true
	for i := range events {
		e := &events[i]
		if e.Run != id {
			return nil, refuse(kind, "event %d is of another run", e.Seq)
		}
		if err := e.Valid(); err != nil {
			return nil, fmt.Errorf("%w: %w", kind, err)
		}
		if !validTexts(e) {
			return nil, refuse(kind, "event %d holds text that is not UTF-8", e.Seq)
		}
		if err := run.CheckEventSize(e, limits.EventPayload); err != nil {
			return nil, fmt.Errorf("%w: event %d: %w", kind, e.Seq, err)
		}
		ordered = ordered && (i == 0 || events[i-1].Seq < e.Seq)
	}
	if ordered {
		return events, nil
	}
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b run.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	kept := events[:1]
	for _, e := range events[1:] {
		last := kept[len(kept)-1]
		if e.Seq != last.Seq {
			kept = append(kept, e)
			continue
		}
		same, err := SameEvent(last, e)
		if err != nil {
			return nil, fmt.Errorf("%w: event %d: %w", kind, e.Seq, err)
		}
		if !same {
			return nil, refuse(ErrEventConflict, "two different events are proposed under the sequence %d", e.Seq)
		}
	}
	return kept, nil
}

// normalEvents are events with every instant normalized: the given ones when they are.
func normalEvents(events []run.Event) []run.Event {
	for i := range events {
		if isInstant(events[i].At) && isInstant(events[i].Wake) {
			continue
		}
		events = slices.Clone(events)
		for i := range events {
			events[i].At = claim.Instant(events[i].At)
			events[i].Wake = claim.Instant(events[i].Wake)
		}
		break
	}
	return events
}

func validTexts(e *run.Event) bool {
	f := e.Failure
	return utf8.ValidString(e.Node) && utf8.ValidString(e.Task) && utf8.ValidString(e.Edge) && utf8.ValidString(e.Field) &&
		utf8.ValidString(e.Interrupt) && utf8.ValidString(e.Reason) &&
		(f == nil || utf8.ValidString(f.Code) && utf8.ValidString(f.Message) && utf8.ValidString(f.Node))
}

// SameEvent reports whether two events have the same canonical content, which is what
// makes appending idempotent (clause E1).
func SameEvent(a, b run.Event) (bool, error) {
	x, err := run.EncodeEvent(a)
	if err != nil {
		return false, err
	}
	y, err := run.EncodeEvent(b)
	if err != nil {
		return false, err
	}
	return bytes.Equal(x, y), nil
}

// EventConflict is the answer when another event is stored under a sequence.
func EventConflict(seq int64) error {
	return refuse(ErrEventConflict, "another event is stored under the sequence %d", seq)
}
