package claim

import "time"

// Lease is what a claimer is handed: the right to commit one run.
type Lease struct {
	Run                string
	Owner              Owner
	GraphID, GraphHash string
	// Seq is the checkpoint sequence at the claim; with Token it is the fence.
	Seq       int64
	Token     Token
	ClaimedAt time.Time
	// Attempt counts launches without a commit between them, this one included.
	Attempt int
	TTL     time.Duration
	// Class says whether the run was ready or stolen from an expired claim.
	Class Class
}

// PoisonedRun is the outcome of a due run whose attempts were used up.
type PoisonedRun struct {
	Run                string
	Owner              Owner
	GraphID, GraphHash string
	Poison             Poison
}

// Batch is what one ClaimDue did.
type Batch struct {
	// Now is the instant the backend used; derive later instants from it plus a
	// monotonic clock of your own.
	Now      time.Time
	Leases   []Lease
	Poisoned []PoisonedRun
}
