// Package backend is the contract of a run store: what it must do, operation by
// operation, and the errors it answers. docs/contract.md has the clauses; proptest
// proves an implementation.
//
// A store is one type that implements Store. The Check functions do the first steps
// of every operation (arguments, shape, instants) and are shared by all stores, so
// that no two of them answer differently; what is left to a store is visibility, the
// comparison with what it holds, and doing all of an operation or nothing.
//
// What is handed to a store belongs to it: documents, events, values and everything
// they refer to are never modified afterwards, neither by the caller nor by the store.
// What a store hands out may be shared in the same way and must not be modified
// either; copy a document before changing it.
package backend

import (
	"context"
	"time"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// Store is a backend. Every operation is safe for concurrent use, checks its
// arguments before it looks anything up (clause A1), and either does all of what it
// says or nothing.
type Store interface {
	Runs
	Events
	Graphs
	// Features declares what the store offers beyond the contract's core. What is
	// declared is tested; a nil field is absent.
	Features() Features
	// Close releases what the store holds. Operations after it answer ErrClosed.
	Close() error
}

// Starter is the part of a store that may be bound to a host's own transaction: it
// publishes, starts and reads, and claims nothing (clause F2).
type Starter interface {
	InsertRun(ctx context.Context, owner Owner, in Initialization) (Inserted, error)
	FetchRun(ctx context.Context, scope Scope, id string) (*run.Document, error)
	InspectRun(ctx context.Context, scope Scope, id string) (Info, error)
	ListRuns(ctx context.Context, scope Scope, q Query) (Page, error)
	Events
	Graphs
}

// Runs stores runs (clauses R1 to R5, K1 to K10, T1 to T5).
type Runs interface {
	// InsertRun stores an initialized run with its events. ErrInvalidCommit,
	// ErrNotFound (no such graph version), ErrConflict (the id is taken). Clauses R1 to R3.
	InsertRun(ctx context.Context, owner Owner, in Initialization) (Inserted, error)
	// FetchRun reads the last committed document. ErrNotFound; *CorruptError. Clause R4.
	FetchRun(ctx context.Context, scope Scope, id string) (*run.Document, error)
	// InspectRun reads the document with its operational state, never the token. Clause R4.
	InspectRun(ctx context.Context, scope Scope, id string) (Info, error)
	// ListRuns lists summaries, newest first; documents are neither loaded nor decoded.
	// Clause R5.
	ListRuns(ctx context.Context, scope Scope, q Query) (Page, error)

	// ClaimDue claims due runs. ErrUnsupported when the policy needs a feature that is
	// not declared. Clauses K1 to K5.
	ClaimDue(ctx context.Context, p claim.Policy) (claim.Batch, error)
	// RefreshClaim moves claimed-at forward under the current token. ErrClaimLost. Clause K7.
	RefreshClaim(ctx context.Context, id string, token claim.Token, now time.Time) error
	// ReleaseClaim gives the claim back; a stale or unknown one is success. Clause K8.
	ReleaseClaim(ctx context.Context, id string, token claim.Token, p claim.ReleasePolicy) error
	// AbandonClaim hands the run back before execution began. Clause K9.
	AbandonClaim(ctx context.Context, id string, token claim.Token, p claim.AbandonPolicy) (claim.Disposition, error)
	// RetryPoisonedRun frees a poisoned run. ErrNotFound, then ErrInactiveRun; a
	// healthy run is success and untouched. Clause K10.
	RetryPoisonedRun(ctx context.Context, scope Scope, id string, now time.Time) error

	// Commit applies a proposal under its fence. Answers, in this order:
	// ErrInvalidCommit or ErrEventConflict (shape), ErrNotFound, ErrInvalidCommit
	// (identity), replayed, *checkpoint.FenceError, ErrEventConflict (stored).
	// Clauses T1, T2, T5.
	Commit(ctx context.Context, scope Scope, c Commit) (Committed, error)
	// MutateRun is the only write without a claim: fn decides on the current document,
	// serialized against every other writer of the run. A commit id that is stored
	// already, in the run's row or beside any of its checkpoint events, is success.
	// ErrNotFound, ErrInvalidMutation, ErrEventConflict, or fn's own error as it is.
	// Clauses T3, T5.
	MutateRun(ctx context.Context, scope Scope, id string, commit checkpoint.ID, fn MutateFunc) (Mutated, error)
}

// Events reads history.
type Events interface {
	// FetchEvent reads one event. ErrNotFound when absent or pruned. Clause E2.
	FetchEvent(ctx context.Context, scope Scope, id string, seq int64) (run.Event, error)
	// LatestEvent is nil for a visible run without events. Clause E2.
	LatestEvent(ctx context.Context, scope Scope, id string) (*run.Event, error)
	// ListEvents lists ascending, after a sequence. *CorruptError for a page that holds a
	// damaged event: it is never left out. Clauses E2, E3.
	ListEvents(ctx context.Context, scope Scope, id string, q EventQuery) (EventPage, error)
}

// Graphs stores published graphs, content-addressed, per owner.
type Graphs interface {
	// SaveGraph stores canonical bytes. ErrInvalidGraphHash, ErrGraphConflict. The same
	// bytes again change nothing. Clause G1.
	SaveGraph(ctx context.Context, owner Owner, ref graph.Ref, raw value.Value) error
	// FetchGraph reads and re-verifies the bytes. ErrNotFound, ErrCorruptGraph. Clause G2.
	FetchGraph(ctx context.Context, owner Owner, ref graph.Ref) (value.Value, error)
	// LatestGraph is the newest version. ErrNotFound. Clause G3.
	LatestGraph(ctx context.Context, owner Owner, id string) (GraphVersion, error)
	// GraphVersions lists versions by (published-at, hash) descending; an unknown graph
	// has none. Clause G3.
	GraphVersions(ctx context.Context, owner Owner, id string, q GraphQuery) (GraphPage, error)
}
