package checkpoint

import (
	"errors"
	"fmt"

	"github.com/belay-run/belay/claim"
)

// Fence is the pair that must match for a commit to be applied (clause T1).
type Fence struct {
	Token claim.Token
	Seq   int64
}

// ErrStaleFence is matched by every *FenceError.
var ErrStaleFence = errors.New("belay: stale fence")

// FenceError says which half of the fence did not match. It holds no token.
type FenceError struct {
	// Stored and Presented are checkpoint sequences.
	Stored, Presented int64
	// TokenMatched is false when another claim, or none, holds the run.
	TokenMatched bool
}

func (e *FenceError) Error() string {
	token := "the claim is held"
	if !e.TokenMatched {
		token = "the claim is lost"
	}
	return fmt.Sprintf("%v: %s, the stored sequence is %d and the commit expected %d: stop, the run moved on without this claimer",
		ErrStaleFence, token, e.Stored, e.Presented)
}

// Is makes errors.Is(err, ErrStaleFence) true.
func (e *FenceError) Is(target error) bool { return target == ErrStaleFence }

// Check compares a presented fence with the stored one: nil, or *FenceError. An
// empty stored token (no claim) matches nothing.
func (stored Fence) Check(presented Fence) error {
	matched := stored.Token != "" && stored.Token == presented.Token
	if matched && stored.Seq == presented.Seq {
		return nil
	}
	return &FenceError{Stored: stored.Seq, Presented: presented.Seq, TokenMatched: matched}
}
