package checkpoint

import "slices"

// ID identifies one commit: a ULID made by the caller, the same each time that
// commit is sent, so that a commit whose answer was lost can be sent again
// (clause T5).
type ID string

// Type says what kind of transition a commit is.
type Type string

// The checkpoint types.
const (
	RunInitialized     Type = "run_initialized"
	StepCommitted      Type = "step_committed"
	RetryScheduled     Type = "retry_scheduled"
	Snoozed            Type = "snoozed"
	InterruptRequested Type = "interrupt_requested"
	InterruptResolved  Type = "interrupt_resolved"
	GraphMigrated      Type = "graph_migrated"
	RunCompleted       Type = "run_completed"
	RunFailed          Type = "run_failed"
	RunCancelled       Type = "run_cancelled"
)

// Types lists every checkpoint type, in the order above.
func Types() []Type {
	return []Type{
		RunInitialized, StepCommitted, RetryScheduled, Snoozed, InterruptRequested,
		InterruptResolved, GraphMigrated, RunCompleted, RunFailed, RunCancelled,
	}
}

// Valid reports whether t is one of the types above.
func (t Type) Valid() bool { return slices.Contains(Types(), t) }
