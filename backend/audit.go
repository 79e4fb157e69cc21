package backend

import (
	"context"
	"iter"
	"time"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

//go:generate go run ./internal/fsckpage ../docs/fsck.md

// Auditor checks what is stored against the invariants I1 to I12 (feature X9), and mends
// what can be mended without guessing.
type Auditor interface {
	// Audit tells everything that is wrong, in the order of the catalogue's parts: first
	// what concerns the store, then graphs, keys, and each run. One bad run hides no other.
	// An error ends the audit: what was found until then stands, the rest is unknown. Runs
	// may go on meanwhile: each is looked at in one snapshot of its own.
	Audit(ctx context.Context, p AuditPolicy) iter.Seq2[Finding, error]
	// Repair mends a finding that has a Repair, in a transaction that first looks whether
	// it still holds; it is false when it does not. A dry run only looks. Findings without
	// a Repair are ErrUnsupported.
	Repair(ctx context.Context, f Finding, dryRun bool) (bool, error)
}

// AuditPolicy says what an audit compares with. The zero value is fine.
type AuditPolicy struct {
	// Now is the instant to judge by; zero means the backend's clock.
	Now time.Time
	// MaxClaimAge is the age from which on a claim is suspicious: the TTL in use, the skew
	// between hosts and the longest pause between two polls, together. Zero: not judged.
	MaxClaimAge time.Duration
	// MaxAttempts and MaxAbandons are the budgets in use. Zero: not judged.
	MaxAttempts, MaxAbandons int
	// Runs, when not empty, looks at these alone, and at nothing else of the store.
	Runs []string
}

// Severity says what a finding means for the rest of the store.
type Severity string

// The severities.
const (
	// SeverityDatabase: nothing the store says can be relied on.
	SeverityDatabase Severity = "database"
	// SeverityRun: this run is broken, and should be left alone. The others are not concerned.
	SeverityRun Severity = "run"
	// SeveritySerious: something is wrong that can be set right.
	SeveritySerious Severity = "serious"
	// SeverityWarning: something is odd, and may be legitimate.
	SeverityWarning Severity = "warning"
)

// AuditCheck is one thing an audit looks at. Its id is stable: the invariant, a dot, a name.
type AuditCheck struct {
	ID       string
	Severity Severity
	// Says is what is wrong when it is found.
	Says string
	// Remedy is what to do about it.
	Remedy string
	// Repair is what Repair does about it; empty when it does not.
	Repair string
}

// Finding is one thing that is wrong. It holds no payload and no token.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Run      string   `json:"run,omitempty"`
	// Tenant owns the run, the graph or the key; empty when none does.
	Tenant string `json:"tenant,omitempty"`
	// Graph and Key name a graph version and a start key, where one is concerned.
	Graph graph.Ref `json:"graph,omitzero"`
	Key   string    `json:"key,omitempty"`
	// Detail is what was found.
	Detail string `json:"detail"`
	Remedy string `json:"remedy"`
	// Repair is what Repair would do; empty when it would not.
	Repair string `json:"repair,omitempty"`
}

// NewFinding is a finding of a check of the catalogue.
func NewFinding(check, detail string) Finding {
	for _, c := range auditChecks {
		if c.ID == check {
			return Finding{Check: c.ID, Severity: c.Severity, Detail: detail, Remedy: c.Remedy, Repair: c.Repair}
		}
	}
	return Finding{Check: check, Severity: SeverityDatabase, Detail: detail}
}

// AuditChecks lists the catalogue, in order. docs/fsck.md is made from it.
func AuditChecks() []AuditCheck { return append([]AuditCheck(nil), auditChecks...) }

const (
	restore = "restore the run from a backup; the other runs go on meanwhile"
	report  = "keep a copy of the store and report it"
)

var auditChecks = []AuditCheck{
	{ID: "I1.storage", Severity: SeverityDatabase, Says: "the storage's own check finds damage", Remedy: "stop every process, keep a copy of the file, and restore a backup"},
	{ID: "I1.schema", Severity: SeverityDatabase, Says: "the schema is not the one that the migrations lead to", Remedy: "stop every process, and restore a backup or undo the change by hand"},
	{ID: "I1.orphan", Severity: SeveritySerious, Says: "a row belongs to a run that is not there", Remedy: "restore the run from a backup, or delete the row by hand"},
	{ID: "I2.missing", Severity: SeverityRun, Says: "the run has no document", Remedy: restore},
	{ID: "I2.document", Severity: SeverityRun, Says: "the document does not decode, or may not be stored", Remedy: restore},
	{ID: "I2.format", Severity: SeverityWarning, Says: "a newer version of belay has written the document", Remedy: "let that version run it; nothing is wrong while it is being rolled out"},
	{ID: "I2.sealed", Severity: SeverityWarning, Says: "documents or events are sealed, and the audit does not have their key", Remedy: "audit with a store that has the keys, to have their content checked as well; nothing is wrong if a process that runs them has them"},
	{ID: "I2.identity", Severity: SeverityRun, Says: "the document is of another run, graph version or start instant than the row", Remedy: restore},
	{ID: "I2.sequence", Severity: SeverityRun, Says: "document and row have different checkpoint sequences", Remedy: restore},
	{ID: "I2.checkpoint", Severity: SeverityRun, Says: "the last checkpoint event is not that of the row", Remedy: restore},
	{ID: "I3.missing", Severity: SeverityRun, Says: "the graph version that the run names is not stored", Remedy: "publish that version again: the same document gives the same hash"},
	{ID: "I3.digest", Severity: SeveritySerious, Says: "the stored graph is not the one that was published under its hash", Remedy: "restore the graph from a backup, or delete it and publish that version again"},
	{ID: "I4.shape", Severity: SeverityRun, Says: "claim, wake and poison of a run do not fit together, or not its status", Remedy: restore},
	{ID: "I5.claim", Severity: SeverityWarning, Says: "a claim is older than any should become", Remedy: "see whether an engine is running that may claim the run; it takes the claim over"},
	{ID: "I6.event", Severity: SeverityRun, Says: "an event does not decode, is of another run or sequence, or is stored twice", Remedy: "restore the run's events from a backup; the run itself is not concerned"},
	{ID: "I6.gap", Severity: SeveritySerious, Says: "an event between the first and the last one retained is not there", Remedy: "restore the run's events from a backup; the run itself is not concerned"},
	{ID: "I6.beyond", Severity: SeverityRun, Says: "there is an event that the document does not know of", Remedy: restore},
	{ID: "I7.document", Severity: SeverityRun, Says: "document and row have different statuses", Remedy: restore},
	{ID: "I7.event", Severity: SeverityRun, Says: "the events tell of another end than the row", Remedy: restore},
	{ID: "I8.timers", Severity: SeverityRun, Says: "parked tasks and timers of the document do not belong together", Remedy: restore},
	{ID: "I8.wake", Severity: SeveritySerious, Says: "a running run has neither wake nor claim nor poison: nobody would ever look at it", Remedy: "repair it", Repair: "make the run due now"},
	{ID: "I9.attempts", Severity: SeveritySerious, Says: "a run was claimed more often in a row than its budget allows", Remedy: "see whether an engine runs with a larger budget; else " + report},
	{ID: "I9.abandons", Severity: SeveritySerious, Says: "a run was abandoned more often in a row than its budget allows", Remedy: "see whether engines hand it back for longer node timeouts than they allow, which never poisons; else " + report},
	{ID: "I9.counters", Severity: SeverityRun, Says: "a counter is below zero", Remedy: restore},
	{ID: "I10.row", Severity: SeveritySerious, Says: "a finished run has a claim, a wake or poison", Remedy: "repair it", Repair: "clear claim, wake and poison of the finished run"},
	{ID: "I10.document", Severity: SeverityRun, Says: "the document of a finished run has a timer, a parked task or an open interrupt", Remedy: restore},
	{ID: "I11.order", Severity: SeverityWarning, Says: "instants of a run are not in their order", Remedy: "look at the clocks of the hosts; nothing depends on the order"},
	{ID: "I12.key", Severity: SeveritySerious, Says: "a start key points at no run, or at one of another owner or graph", Remedy: "repair it", Repair: "free the key"},
}

// StoredRun is a run as it is stored, for AuditRun: nothing about it is taken for granted.
type StoredRun struct {
	Run                              string
	Owner                            Owner
	Graph                            graph.Ref
	Status                           run.Status
	StartedAt, UpdatedAt, FinishedAt time.Time
	State                            claim.State
	Seq                              int64
	CheckpointID                     checkpoint.ID
	// Document is nil when there is none.
	Document []byte
	// GraphStored: the graph version is there, whatever its bytes.
	GraphStored bool
	// Events are the rows of the retained ones, ascending.
	Events iter.Seq[StoredEvent]
	// Opener opens what is sealed. Nil: nothing sealed is looked into.
	Opener *Opener
}

// StoredEvent is a row of events as it is stored, see EventRow.
type StoredEvent struct {
	// Seq is what the row is kept under, the sequence of its last event.
	Seq int64
	// CheckpointID is the one beside a checkpoint event; else empty.
	CheckpointID checkpoint.ID
	Body         []byte
}
