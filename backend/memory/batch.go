package memory

import (
	"context"
	"errors"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

// tryLock takes a run's lock, or answers ErrBusy.
func tryLock(l *lock, _ context.Context) error {
	if !l.try() {
		return backend.ErrBusy
	}
	return nil
}

// InsertRuns inserts each (feature X2).
func (s *Store) InsertRuns(ctx context.Context, owner backend.Owner, ins []backend.Initialization) []backend.InsertResult {
	results := make([]backend.InsertResult, len(ins))
	for i := range ins {
		results[i].Inserted, results[i].Err = s.InsertRun(ctx, owner, ins[i])
	}
	return results
}

// Commits commits each (clause T6). Those whose run is locked by somebody else come after
// the others, and then wait.
func (s *Store) Commits(ctx context.Context, scope backend.Scope, cs []backend.Commit) []backend.CommitResult {
	results := make([]backend.CommitResult, len(cs))
	var busy []int
	for i := range cs {
		c, err := backend.CheckCommit(scope, cs[i], s.limits)
		if err == nil {
			results[i].Committed, err = s.commit(ctx, scope, c, tryLock)
		}
		results[i].Err = err
		if errors.Is(err, backend.ErrBusy) {
			busy = append(busy, i)
		}
	}
	for _, i := range busy {
		results[i].Committed, results[i].Err = s.Commit(ctx, scope, cs[i])
	}
	return results
}

// RefreshClaims refreshes each (clause K7). A run that is locked by somebody else answers
// ErrBusy.
func (s *Store) RefreshClaims(ctx context.Context, claims []backend.Held, now time.Time) []error {
	now = s.clock.or(claim.Instant(now))
	errs := make([]error, len(claims))
	for i, held := range claims {
		err := backend.CheckClaim(held.Run, held.Token)
		if err == nil {
			err = s.enter(ctx, "refresh: begun")
		}
		if err == nil {
			err = s.refresh(ctx, held.Run, held.Token, now, tryLock)
		}
		errs[i] = err
	}
	return errs
}
