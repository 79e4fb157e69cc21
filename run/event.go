package run

import (
	"time"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/value"
)

// EventType says what an event tells.
type EventType string

// The event types.
const (
	EventRunInitialized      EventType = "run_initialized"
	EventNodeCompleted       EventType = "node_completed"
	EventNodeSkipped         EventType = "node_skipped"
	EventNodeSnoozed         EventType = "node_snoozed"
	EventNodeFailed          EventType = "node_failed"
	EventStateUpdated        EventType = "state_updated"
	EventEdgeFired           EventType = "edge_fired"
	EventInterruptRequested  EventType = "interrupt_requested"
	EventInterruptResolved   EventType = "interrupt_resolved"
	EventInterruptClosed     EventType = "interrupt_closed"
	EventGraphMigrated       EventType = "graph_migrated"
	EventRunCompleted        EventType = "run_completed"
	EventRunFailed           EventType = "run_failed"
	EventRunCancelled        EventType = "run_cancelled"
	EventCheckpointCommitted EventType = "checkpoint_committed"
)

// EventTypes lists every event type, in the order above.
func EventTypes() []EventType {
	return []EventType{
		EventRunInitialized, EventNodeCompleted, EventNodeSkipped, EventNodeSnoozed, EventNodeFailed,
		EventStateUpdated, EventEdgeFired, EventInterruptRequested, EventInterruptResolved, EventInterruptClosed,
		EventGraphMigrated, EventRunCompleted, EventRunFailed, EventRunCancelled, EventCheckpointCommitted,
	}
}

// Valid reports whether t is one of the types above.
func (t EventType) Valid() bool {
	switch t {
	case EventRunInitialized, EventNodeCompleted, EventNodeSkipped, EventNodeSnoozed, EventNodeFailed,
		EventStateUpdated, EventEdgeFired, EventInterruptRequested, EventInterruptResolved, EventInterruptClosed,
		EventGraphMigrated, EventRunCompleted, EventRunFailed, EventRunCancelled, EventCheckpointCommitted:
		return true
	}
	return false
}

// Event is one fact of a run's history. Its content is canonical: EncodeEvent
// gives the same bytes for the same fact. The events of one commit are numbered
// without a gap and come in this order: facts of nodes by node, updates of fields
// by field, edges by id, interrupts by id, the run's fact, and one closing
// checkpoint_committed.
type Event struct {
	Run  string    `json:"run"`
	Seq  int64     `json:"seq"`
	Type EventType `json:"type"`
	At   time.Time `json:"at"`   // the commit's now
	Step int64     `json:"step"` // the superstep that the commit settled, or found the run in

	Node       string          `json:"node,omitempty"`
	Task       string          `json:"task,omitempty"`
	Attempt    int             `json:"attempt,omitempty"`
	Edge       string          `json:"edge,omitempty"`
	Field      string          `json:"field,omitempty"`
	Version    int64           `json:"version,omitempty"`
	Interrupt  string          `json:"interrupt,omitempty"`
	Reason     string          `json:"reason,omitempty"` // of a skip, of a cancel; "deadline" when a default answered
	Wake       time.Time       `json:"wake,omitzero"`    // of a snooze, of a retry; a start in the future; an interrupt's deadline
	Failure    *Failure        `json:"failure,omitempty"`
	Checkpoint checkpoint.Type `json:"checkpoint,omitempty"`     // of checkpoint_committed
	Commit     int64           `json:"checkpoint_seq,omitempty"` // of checkpoint_committed
	Data       value.Value     `json:"data,omitempty"`           // a question, a migration's facts
}

// Valid reports whether e may be stored: nil, or an error that wraps
// ErrInvalidEvent and names the rule.
func (e Event) Valid() error {
	switch {
	case e.Run == "":
		return invalidEvent(e, "it names no run")
	case e.Seq < 1:
		return invalidEvent(e, "its sequence is below 1")
	case !e.Type.Valid():
		return invalidEvent(e, "its type is unknown")
	case e.Step < 0 || e.Attempt < 0 || e.Version < 0 || e.Commit < 0:
		return invalidEvent(e, "a counter is negative")
	case e.At.IsZero():
		return invalidEvent(e, "it has no time")
	case !storableInstant(e.At) || !storableInstant(e.Wake):
		return invalidEvent(e, "a time is not UTC in whole microseconds of the years 1 to 9999")
	case e.Checkpoint != "" && !e.Checkpoint.Valid():
		return invalidEvent(e, "its checkpoint type is unknown")
	case (e.Type == EventCheckpointCommitted) != (e.Checkpoint != ""):
		return invalidEvent(e, "a checkpoint type belongs to checkpoint_committed, and to nothing else")
	case e.Failure != nil && (e.Failure.Code == "" || e.Failure.Message == ""):
		return invalidEvent(e, "its failure has no code or no message")
	}
	return nil
}
