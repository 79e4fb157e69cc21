package backend

import (
	"context"
	"errors"
	"fmt"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

var (
	// ErrInvalidArgument: an argument was refused before anything was looked up.
	ErrInvalidArgument = claim.ErrInvalidArgument
	// ErrNotFound: absent, or not visible in the scope; the two are one answer.
	ErrNotFound = errors.New("belay: not found")
	// ErrConflict: the run id is taken (by whom is not said).
	ErrConflict = errors.New("belay: the run id is taken: start the run under another id")
	// ErrInvalidCommit: a proposal that no state of the run could accept.
	ErrInvalidCommit = errors.New("belay: invalid commit")
	// ErrInvalidMutation: the same, from a mutation's function.
	ErrInvalidMutation = errors.New("belay: invalid mutation")
	// ErrEventConflict: another event is stored, or proposed, under the same sequence.
	ErrEventConflict = errors.New("belay: event conflict")
	// ErrClaimLost: the token does not hold the run.
	ErrClaimLost = claim.ErrClaimLost
	// ErrInactiveRun: the run is terminal.
	ErrInactiveRun = run.ErrInactiveRun
	// ErrInvalidGraphHash: the digest of the bytes is not the hash.
	ErrInvalidGraphHash = errors.New("belay: the graph's hash is not its digest: publish the canonical bytes under their SHA-256")
	// ErrGraphConflict: other bytes are stored under the same hash.
	ErrGraphConflict = errors.New("belay: other bytes are stored under this graph version")
	// ErrCorruptGraph: the stored bytes do not match their hash.
	ErrCorruptGraph = errors.New("belay: the stored graph is corrupt")
	// ErrCorrupt is matched by *CorruptError.
	ErrCorrupt = errors.New("belay: the stored row is corrupt")
	// ErrBusy: the row is locked by another transaction just now.
	ErrBusy = errors.New("belay: busy: try again")
	// ErrUnsupported: the store does not declare the feature.
	ErrUnsupported = errors.New("belay: the backend does not offer this")
	// ErrClosed: the store is closed.
	ErrClosed = errors.New("belay: the backend is closed")
)

// ArgumentError names the argument. It matches ErrInvalidArgument.
type ArgumentError = claim.ArgumentError

// CorruptError is a stored row that cannot be read. It matches ErrCorrupt, and
// never ErrNotFound. A document of a newer format also matches run.ErrFormat.
type CorruptError struct {
	Run  string
	What string // "document", "event 7", ...
	Err  error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%v: run %s: %s: %v", ErrCorrupt, e.Run, e.What, e.Err)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap is the decoding error.
func (e *CorruptError) Unwrap() error { return e.Err }

// Nature says what may be done about an error.
type Nature uint8

const (
	// Permanent: the same call fails again.
	Permanent Nature = iota
	// Transient: nothing took effect; the same call may be sent again.
	Transient
	// Unknown: it may have taken effect; send the same call with the same ids again.
	Unknown
)

// String names the nature.
func (n Nature) String() string {
	switch n {
	case Permanent:
		return "permanent"
	case Transient:
		return "transient"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("nature %d", uint8(n))
}

// InfrastructureError is a failure below the contract: connection, disk, server.
type InfrastructureError struct {
	Op     string
	Nature Nature
	Err    error
}

func (e *InfrastructureError) Error() string { return fmt.Sprintf("belay: %s: %v", e.Op, e.Err) }

// Unwrap is the driver's error.
func (e *InfrastructureError) Unwrap() error { return e.Err }

// answers are the errors that are answers of the contract, or of the packages whose
// data it stores.
var answers = []error{
	ErrInvalidArgument, ErrNotFound, ErrConflict, ErrInvalidCommit, ErrInvalidMutation,
	ErrEventConflict, ErrClaimLost, ErrInactiveRun, ErrInvalidGraphHash, ErrGraphConflict,
	ErrCorruptGraph, ErrCorrupt, ErrSealed, ErrSealing, ErrUnsupported, ErrClosed, checkpoint.ErrStaleFence,
	run.ErrInvalidDocument, run.ErrInvalidEvent, run.ErrInvalidInput, run.ErrInvalidResults,
	run.ErrNoInterrupt, run.ErrAlreadyResolved, run.ErrInvalidAnswer, run.ErrFormat, value.ErrInvalid, value.ErrTooLarge,
}

// StillOpen is the error of a call that was made before: open says that what became of an earlier attempt is not known.
// That nothing came of the last one says nothing of that, so a Transient error is Unknown then (clause A6).
func StillOpen(err error, open bool) error {
	if !open || Classify(err) != Transient {
		return err
	}
	return &InfrastructureError{Op: "sent again", Nature: Unknown, Err: err}
}

// Classify says what may be done about an error of a store (clause A6). An
// *InfrastructureError in its chain decides. Otherwise ErrBusy is Transient, and the
// contract's other errors are Permanent: they are answers. Everything else, a context's
// end included, is Unknown: sending the same call with the same ids again is always
// right, and nothing less is known. A nil error is Permanent.
func Classify(err error) Nature {
	if err == nil {
		return Permanent
	}
	if infra, ok := errors.AsType[*InfrastructureError](err); ok {
		return infra.Nature
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Unknown
	}
	if errors.Is(err, ErrBusy) {
		return Transient
	}
	for _, answer := range answers {
		if errors.Is(err, answer) {
			return Permanent
		}
	}
	return Unknown
}
