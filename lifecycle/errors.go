package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// Why the context of a node ended; context.Cause tells which.
var (
	// ErrClaimLost: another claimer took the run, a signal revoked the claim, or it could not
	// be refreshed in time. What the node returns is dropped.
	ErrClaimLost = claim.ErrClaimLost
	// ErrRunCancelled: the run was cancelled. What the node returns is dropped.
	ErrRunCancelled = errors.New("belay: the run was cancelled")
	// ErrShutdown: the engine is shutting down; the run goes on elsewhere, without an attempt used up.
	ErrShutdown = errors.New("belay: the engine is shutting down")
)

// What Run answers when it cannot serve.
var (
	// ErrRunning: the engine serves already.
	ErrRunning = errors.New("belay: the engine is running already: call Run once")
	// ErrStopped: the engine has served, or was shut down before it did.
	ErrStopped = errors.New("belay: the engine was shut down: make another one to go on")
)

// TimeoutError is the cause of a node's context that ended at its deadline. It matches
// context.DeadlineExceeded.
type TimeoutError struct {
	Node    string
	Timeout time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("belay: node %s took longer than its timeout of %v", e.Node, e.Timeout)
}

// Is makes errors.Is(err, context.DeadlineExceeded) true.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// ErrPoisoned is matched by *PoisonedError.
var ErrPoisoned = errors.New("belay: the run is poisoned")

// PoisonedError says that a run is parked until RetryPoisoned frees it.
type PoisonedError struct {
	Run    string
	Poison claim.Poison
}

func (e *PoisonedError) Error() string {
	return fmt.Sprintf("%v: %s since %s (%s): find the cause, then free it with RetryPoisoned",
		ErrPoisoned, e.Run, e.Poison.At.Format(time.RFC3339), e.Poison.Reason)
}

// Is makes errors.Is(err, ErrPoisoned) true.
func (e *PoisonedError) Is(target error) bool { return target == ErrPoisoned }

// AwaitError says that a context ended before the awaited run came to rest. The run goes on by
// itself.
type AwaitError struct {
	Run string
	// Status is the run's, as it was seen last; empty when it was not seen.
	Status run.Status
	// Cause is why the context ended.
	Cause error
}

func (e *AwaitError) Error() string {
	status := e.Status
	if status == "" {
		status = "not seen yet"
	}
	return fmt.Sprintf("belay: run %s did not come to rest while it was awaited (%s), it goes on by itself: await it longer, or look at it later with Inspect; if it never gets on, see that an engine runs that has its nodes: %v", e.Run, status, e.Cause)
}

// Unwrap is the cause.
func (e *AwaitError) Unwrap() error { return e.Cause }

// checkContext refuses a nil context, which would panic somewhere below.
func checkContext(ctx context.Context) error {
	if ctx == nil {
		return &backend.ArgumentError{Argument: "ctx", Reason: "is nil: pass context.Background() when there is none"}
	}
	return nil
}
