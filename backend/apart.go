package backend

import (
	"context"
	"time"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// Apart is a backend of an older shape: inserts, commits and mutations never append
// events; an event store with Append stands beside them, and Transact puts both in one
// transaction. FromApart makes a Store of one (clause F1).
//
// Its operations have the meaning that the contract gives to those of Store, with these
// differences. FromApart has done the checks of the Check functions before it calls, so
// an Apart is only handed arguments and proposals that are well-formed, with normalized
// instants and events that are ordered and without duplicates. What Store does with
// events is left out of ApartRuns and done by Append.
type Apart interface {
	ApartRuns
	ApartEvents
	Graphs
	// Transact runs fn in one transaction: both stores' writes are visible together, or
	// when fn or the transaction fails, not at all. fn's error is handed back as it is.
	// fn may be called again, uses only the stores it is given, and never nests.
	Transact(ctx context.Context, fn func(runs ApartRuns, events ApartEvents) error) error
	Close() error
}

// ApartRuns are the run operations of the older shape.
type ApartRuns interface {
	// InsertRun answers ErrNotFound (no such graph version), Existing (the key is held),
	// or ErrConflict, in this order. It stores the checkpoint id in the run's row. It does
	// not look for replays: FromApart does.
	InsertRun(ctx context.Context, owner Owner, in ApartInsert) (Inserted, error)
	FetchRun(ctx context.Context, scope Scope, id string) (*run.Document, error)
	InspectRun(ctx context.Context, scope Scope, id string) (Info, error)
	ListRuns(ctx context.Context, scope Scope, q Query) (Page, error)

	ClaimDue(ctx context.Context, p claim.Policy) (claim.Batch, error)
	RefreshClaim(ctx context.Context, id string, token claim.Token, now time.Time) error
	ReleaseClaim(ctx context.Context, id string, token claim.Token, p claim.ReleasePolicy) error
	AbandonClaim(ctx context.Context, id string, token claim.Token, p claim.AbandonPolicy) (claim.Disposition, error)
	RetryPoisonedRun(ctx context.Context, scope Scope, id string, now time.Time) error

	// Commit answers ErrNotFound, ErrInvalidCommit (CheckIdentity), Replayed (the row's
	// checkpoint id is this one), *checkpoint.FenceError, in this order.
	Commit(ctx context.Context, scope Scope, p ApartProposal, token claim.Token) (Committed, error)
	// MutateRun calls fn with the current document, serialized against every other
	// writer of the run, and applies what it proposes; committed is false when it
	// proposes nothing. fn's error is handed back as it is. ErrNotFound, without calling
	// fn; ErrInvalidMutation when a proposal of type graph_migrated names a graph version
	// that is not stored. Within Transact, fn reads from the event store of the same
	// transaction.
	MutateRun(ctx context.Context, scope Scope, id string, fn ApartMutateFunc) (committed bool, err error)
}

// ApartEvents is an event store of its own.
type ApartEvents interface {
	Events
	// Append stores the events of one commit, each with the same canonical content at
	// most once, and the commit's id beside them. ErrEventConflict, ErrNotFound.
	Append(ctx context.Context, scope Scope, a ApartAppend) error
	// CommitSeq is the checkpoint sequence of the run's commit with this id. ErrNotFound
	// when none was appended, and for a run that is not visible.
	CommitSeq(ctx context.Context, scope Scope, id string, commit checkpoint.ID) (int64, error)
}

// ApartProposal is a commit without its events.
type ApartProposal struct {
	Document     *run.Document
	Type         checkpoint.Type
	Schedule     checkpoint.Schedule
	Expected     int64
	Now          time.Time // zero: the backend's clock
	CheckpointID checkpoint.ID
}

// ApartInsert is the first commit of a run, without its events.
type ApartInsert struct {
	ApartProposal
	// Key and Window are those of Initialization.
	Key    string
	Window time.Duration
}

// ApartMutateFunc decides on a run's next commit, or nil for none.
type ApartMutateFunc func(current *run.Document) (*ApartProposal, error)

// ApartAppend is what one commit appends.
type ApartAppend struct {
	Run          string
	CheckpointID checkpoint.ID
	// Seq is the checkpoint sequence of the commit.
	Seq    int64
	Events []run.Event
}
