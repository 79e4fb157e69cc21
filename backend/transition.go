package backend

import (
	"time"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// Initialization is the first commit of a run.
type Initialization struct {
	// Proposal is due by its schedule: release-now or release-at, or retain with a Claim.
	// Its Now (zero: the backend's clock) is the instant of the insert.
	run.Proposal
	CheckpointID checkpoint.ID
	// Key, when not empty, is the start key: while its run is not terminal, and until
	// Window after its insert, another insert with it answers the first run. Clause R2.
	Key string
	// Window is not negative, and without a Key says nothing.
	Window time.Duration
	// Claim, when not nil, stores the run already claimed (feature X1) instead of due:
	// the schedule is retain. Clause R3.
	Claim *StartClaim
}

// StartClaim asks for a run that is stored claimed.
type StartClaim struct {
	// TTL is echoed in the lease; not negative.
	TTL time.Duration
}

// Inserted is what an insert did.
type Inserted struct {
	// Run is the stored run's id: the first run's, when Existing.
	Run string
	// Existing: the start key was held by another insert; nothing was stored.
	Existing bool
	// Replayed: this very insert had been stored before; nothing was stored and no lease
	// is returned.
	Replayed bool
	// Lease is set for a new run inserted with a Claim.
	Lease *claim.Lease
}

// Commit is a proposal under a fence.
type Commit struct {
	// Proposal's Now (zero: the backend's clock) is used by retain and release-now.
	run.Proposal
	CheckpointID checkpoint.ID
	// Token and Proposal.Expected are the fence.
	Token claim.Token
}

// Committed is what a commit did.
type Committed struct {
	// Replayed: this very commit had been applied before; nothing was touched.
	Replayed bool
}

// MutateFunc decides a mutation from the current document, which it must not modify.
// It may be called several times, the last answer counts; it must be quick, do no I/O,
// and not call the store: it may run while the run is locked.
type MutateFunc func(current *run.Document) (Mutation, error)

// Mutation is a decision: a proposal with a release schedule, or no change.
type Mutation struct {
	Proposal *run.Proposal // nil: no change
	Value    any           // handed back to the caller
}

// Mutated is what a mutation did.
type Mutated struct {
	// Committed is false when fn decided on no change.
	Committed bool
	// Replayed: the commit id was stored already; nothing was touched, and Value is nil.
	// Committed is true as well.
	Replayed bool
	// Document is the run's document after the operation.
	Document *run.Document
	// Value is what fn handed back.
	Value any
}
