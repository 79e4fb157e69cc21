package backend

import (
	"context"
	"time"

	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// Features declares what a store offers beyond the core (clauses X1 to X10; X8 and X9
// are no part of Store). Nothing is inferred; what is declared is tested. A nil (or
// false) field is absent.
type Features struct {
	StartClaimed   bool           // X1: Initialization.Claim
	Batches        Batches        // X2
	ClaimDocuments ClaimDocuments // X3
	ClaimFilter    bool           // X4: claim.Policy.Filter
	Wakes          Wakes          // X5
	Clock          Clock          // X6
	Retention      Retention      // X7
	Audit          Auditor        // X9
	OwnerCap       bool           // X10: claim.Policy.OwnerCap
}

// Batches applies many single calls at once: equal to the single calls in some order,
// an answer each, in the order given; a bad member harms no other.
type Batches interface {
	InsertRuns(ctx context.Context, owner Owner, ins []Initialization) []InsertResult
	// Commits hold one proposal per run.
	Commits(ctx context.Context, scope Scope, cs []Commit) []CommitResult
	// RefreshClaims skips rows locked by others and answers ErrBusy for them, never ErrClaimLost.
	RefreshClaims(ctx context.Context, claims []Held, now time.Time) []error
}

// InsertResult, CommitResult are one member's answer.
type (
	InsertResult struct {
		Inserted
		Err error
	}
	CommitResult struct {
		Committed
		Err error
	}
)

// Held is a claim somebody holds.
type Held struct {
	Run   string
	Token claim.Token
}

// ClaimDocuments claims as ClaimDue does, document and lease from one snapshot (clause K6).
type ClaimDocuments interface {
	ClaimDueDocuments(ctx context.Context, p claim.Policy) (ClaimedBatch, error)
}

// ClaimedBatch is a claim batch with documents.
type ClaimedBatch struct {
	claim.Batch
	// Documents are index for index those of Leases.
	Documents []ClaimedDocument
}

// ClaimedDocument is a document, or why it does not decode.
type ClaimedDocument struct {
	Document *run.Document
	Err      error
}

// Wakes tells of runs that became due. Nothing depends on it.
type Wakes interface {
	// Subscribe returns a channel that gets a value once the subscription is live,
	// and after that whenever something may have become due or changed; values coalesce.
	// It is closed when ctx ends or the store closes.
	Subscribe(ctx context.Context) (<-chan struct{}, error)
}

// Clock is the backend's clock: monotone non-decreasing.
type Clock interface {
	Now(ctx context.Context) (time.Time, error)
}

// Retention deletes finished runs: events first, then runs, unreferenced graph
// versions last. What it deleted is ErrNotFound everywhere.
type Retention interface {
	Prune(ctx context.Context, p PrunePolicy) (Pruned, error)
}

// PrunePolicy says what may go.
type PrunePolicy struct {
	// Before: runs finished strictly before this instant.
	Before time.Time
	// Statuses, when not empty, narrows to these terminal statuses.
	Statuses []run.Status
	// Limit bounds the runs of one call; 1 to MaxLimit.
	Limit int
	// Graphs deletes graph versions that no run references and that were published
	// before Before; the newest version of each graph is kept.
	Graphs bool
	// DryRun counts what this call would delete, and deletes nothing.
	DryRun bool
}

// Pruned counts what one call deleted (or would).
type Pruned struct {
	Runs, Events, Graphs int
	// More: the limit was reached and there is more; call again. After a dry run, which would
	// count the same again, it says that each number is the least that would go.
	More bool
}
