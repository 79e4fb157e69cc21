package node

import (
	"context"
	"time"

	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// Call is what a node is told about the attempt it is.
type Call struct {
	// Run, Node, Task and AttemptID name the attempt. A task is one activation of a node
	// (run:step:node); its attempts are task:1, task:2 and so on.
	Run, Node, Task, AttemptID string
	// Use and Version name the node type that the graph asks for. Middleware tells nodes apart by it.
	Use     string
	Version int
	// Tenant owns the run; empty for a run of no tenant.
	Tenant string
	// Metadata is what the run was given at its start. It is no part of the state.
	Metadata map[string]string
	// Attempt is the number of recorded failures of the task, plus one. An attempt whose
	// process died, or that was snoozed, is not a failure.
	Attempt int
	// IdempotencyKey is the same for every attempt of the task, whichever process makes it.
	IdempotencyKey string
	// Deadline is when ctx ends; zero means none.
	Deadline time.Time
	// PlannedAt is when the task was first planned: the same for every attempt, so what a
	// node waits for is counted from it.
	PlannedAt time.Time
	// Answers are the answers to the node's interrupts since its last completion,
	// oldest first. Every attempt is told them.
	Answers []run.Answer
	// Reads holds the node's snapshot by its own names. A name that was never written,
	// and has no default, is left out.
	Reads map[string]value.Value
	// Writes lists the node's own names it may write.
	Writes []string
	// Now is the engine's clock, which Now reads from a context. Prepared.Run fills in time.Now when it is nil.
	Now func() time.Time
	// KeyRead, when it is set, is told of every read of the key by IdempotencyKey: a test
	// learns from it which nodes guard what they do. It must be safe for concurrent use.
	KeyRead func()
}

type callKey struct{}

// FromContext is the call of the attempt that ctx belongs to; ok is false outside a node.
func FromContext(ctx context.Context) (call *Call, ok bool) {
	call, ok = ctx.Value(callKey{}).(*Call)
	return call, ok
}

// Now is the time by the clock of the call that ctx belongs to, which is the engine's.
// Outside a node it is time.Now.
func Now(ctx context.Context) time.Time {
	if call, ok := FromContext(ctx); ok && call.Now != nil {
		return call.Now()
	}
	return time.Now()
}

// IdempotencyKey is the key of the call that ctx belongs to: the same for every
// attempt of a task, and different for every task. It is "" outside a node.
func IdempotencyKey(ctx context.Context) string {
	if call, ok := FromContext(ctx); ok {
		if call.KeyRead != nil {
			call.KeyRead()
		}
		return call.IdempotencyKey
	}
	return ""
}

// Answered is the newest answer to the question id that this node asked, decoded into
// T; with id "" the newest to any of its questions. ok is false when there is none yet,
// and outside a node. An answer that does not fit T is a permanent error: the answer is
// stored, and asking again is the way to another one.
func Answered[T any](ctx context.Context, id string) (answer T, ok bool, err error) {
	call, ok := FromContext(ctx)
	if !ok {
		return answer, false, nil
	}
	for i := len(call.Answers) - 1; i >= 0; i-- {
		a := call.Answers[i]
		if id != "" && a.Interrupt != id {
			continue
		}
		if err := decodeInto(a.Value, &answer); err != nil {
			return answer, true, Permanent(invalidAt("the answer to "+a.Interrupt, err))
		}
		return answer, true, nil
	}
	return answer, false, nil
}
