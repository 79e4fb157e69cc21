package run

import (
	"time"

	"github.com/belay-run/belay/value"
)

// Result is what one attempt of a node came to; make it with Completed, Skip,
// Snooze, Ask, Retry or Permanent. The zero Result is refused by Settle.
type Result struct {
	Node string

	kind     ResultKind
	update   map[string]value.Value // by the node's own names
	reason   string
	until    time.Time // of a snooze; not-before of a retryable failure
	question *Question // of ResultAsked
	failure  *Failure  // of ResultRetry and ResultPermanent
}

// ResultKind says which of the six answers a result is.
type ResultKind uint8

// The kinds of result. The zero kind is none.
const (
	ResultCompleted ResultKind = iota + 1
	ResultSkipped
	ResultSnoozed
	ResultAsked
	ResultRetry
	ResultPermanent
)

// String names the kind.
func (k ResultKind) String() string {
	switch k {
	case ResultCompleted:
		return "completed"
	case ResultSkipped:
		return "skipped"
	case ResultSnoozed:
		return "snoozed"
	case ResultAsked:
		return "asked"
	case ResultRetry:
		return "retry"
	case ResultPermanent:
		return "permanent"
	}
	return "none"
}

// Question is an interrupt as a node asks for it.
type Question struct {
	// ID must be unique in the run; empty means the task id.
	ID string
	// Prompt is what a person is shown; any JSON.
	Prompt value.Value
	// Field (the node's own write name) receives the answer through its reducer;
	// empty: the answer is stored and told to the node, not written.
	Field string
	// Schema of the answer; nil admits any.
	Schema value.Value
	// Deadline zero: none. At the deadline Default answers (nil is null), which
	// must fit the schemas. A default without a deadline is refused.
	Deadline time.Time
	Default  value.Value
}

// Completed is an update by the node's own write names; a name left out, or with
// a nil value, is not written.
func Completed(node string, update map[string]value.Value) Result {
	return Result{Node: node, kind: ResultCompleted, update: update}
}

// Skip completes without an update, with a reason.
func Skip(node, reason string) Result {
	return Result{Node: node, kind: ResultSkipped, reason: reason}
}

// Snooze parks the task until an instant without using up an attempt. An instant
// in the past means due at once.
func Snooze(node string, until time.Time) Result {
	return Result{Node: node, kind: ResultSnoozed, until: until}
}

// Ask opens an interrupt.
func Ask(node string, q Question) Result {
	return Result{Node: node, kind: ResultAsked, question: &q}
}

// Retry is a retryable failure (an error, a panic, a timeout), not to be tried
// again before notBefore (zero: the backoff alone decides). When attempts are used
// up it fails the run.
func Retry(node string, f Failure, notBefore time.Time) Result {
	return Result{Node: node, kind: ResultRetry, failure: &f, until: notBefore}
}

// Permanent is a failure that fails the run.
func Permanent(node string, f Failure) Result {
	return Result{Node: node, kind: ResultPermanent, failure: &f}
}

// Kind says which answer r is.
func (r Result) Kind() ResultKind { return r.kind }

// Update is the update of a completed result, by the node's own write names. It
// is shared with the result: do not modify it.
func (r Result) Update() map[string]value.Value { return r.update }

// Reason is why a node skipped.
func (r Result) Reason() string { return r.reason }

// Until is when a snooze ends, or the not-before of a retryable failure.
func (r Result) Until() time.Time { return r.until }

// Question is what an asking node asks.
func (r Result) Question() Question {
	if r.question == nil {
		return Question{}
	}
	return *r.question
}

// Failure is what went wrong; ok is false unless r is a retryable or a permanent failure.
func (r Result) Failure() (f Failure, ok bool) {
	if r.failure == nil {
		return Failure{}, false
	}
	return *r.failure, true
}
