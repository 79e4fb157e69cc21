package node

import (
	"time"

	"github.com/belay-run/belay/value"
)

// Question is an interrupt a node asks for. Prompt and Default are any values that
// encode to JSON.
type Question struct {
	// ID must be unique in the run. Defaults to the task id, so that a node in a cycle
	// asks anew each round.
	ID string
	// Prompt is what a person is shown.
	Prompt any
	// Field is the node's own write name that receives the answer, through the field's
	// reducer. When empty, the answer is stored and told to the node (Answered), not written.
	Field string
	// Schema of the answer; nil admits any.
	Schema value.Value
	// Deadline is when Default answers; zero means never. The function runs again from its
	// beginning, so count it from Call.PlannedAt, or from Now(ctx), and not from time.Now: the
	// clock is the engine's.
	Deadline time.Time
	// Default is the answer at the deadline; nil is null. It must fit Schema and the field.
	// Without a Deadline it would never answer, and is refused: the run fails with
	// run.CodeInvalidInterrupt.
	Default any
}

// Ask opens an interrupt: the node completes nothing now, and runs again when the
// question is answered.
//
//	approved, ok, err := node.Answered[bool](ctx, "")
//	if err != nil || !ok {
//		return out, cmp.Or(err, node.Ask(node.Question{Prompt: "ship it?"}))
//	}
func Ask(q Question) error { return &askError{question: q} }

// Snooze parks the task until an instant; no attempt is used up. An instant in the past
// is due at once. The zero time is refused, as a permanent failure.
//
// When the instant has come the function runs again from its beginning, and nothing in it
// remembers that it snoozed. So one that waits counts from Call.PlannedAt, which stays, and
// asks the engine's clock whether it has waited:
//
//	call, _ := node.FromContext(ctx)
//	if until := call.PlannedAt.Add(24 * time.Hour); node.Now(ctx).Before(until) {
//		return out, node.Snooze(until)
//	}
//	// The day is over: go on.
//
// Snoozing until a time counted from Now each time never ends.
func Snooze(until time.Time) error { return &snoozeError{until: until} }

// Skip completes the node without an update. Edges, guards and barriers count it as a
// completion; the reason is kept in the history.
func Skip(reason string) error { return &skipError{reason: reason} }

// Permanent marks err: the run fails, whatever the node's retry policy. A nil err stays
// nil. A *value.LimitError is permanent without a mark.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err: err}
}

// RetryAfter marks err: the next attempt starts no earlier than notBefore, nor earlier
// than the node's backoff says. It uses up an attempt like any failure. A nil err stays nil.
func RetryAfter(err error, notBefore time.Time) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err: err, notBefore: notBefore}
}

// WithDetails attaches facts to err: they are stored with the failure, as JSON. details
// is any value that encodes to JSON. The outermost details of an error count. A nil err
// stays nil.
func WithDetails(err error, details any) error {
	if err == nil {
		return nil
	}
	return &detailsError{err: err, details: details}
}

type askError struct{ question Question }

func (e *askError) Error() string { return "belay: the node asks a question" }

type snoozeError struct{ until time.Time }

func (e *snoozeError) Error() string { return "belay: the node snoozes" }

type skipError struct{ reason string }

func (e *skipError) Error() string { return "belay: the node is skipped: " + e.reason }

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

type retryAfterError struct {
	err       error
	notBefore time.Time
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

type detailsError struct {
	err     error
	details any
}

func (e *detailsError) Error() string { return e.err.Error() }
func (e *detailsError) Unwrap() error { return e.err }

// codedError gives a failure of this package's own a code of the run package.
type codedError struct {
	code string
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }
