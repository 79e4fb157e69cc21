package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

// RefreshClaim implements backend.Runs (clause K7).
func (s *Store) RefreshClaim(ctx context.Context, id string, token claim.Token, now time.Time) error {
	if err := backend.CheckClaim(id, token); err != nil {
		return err
	}
	held := false
	err := s.try(ctx, "refresh claim", always, func(db session) error {
		return s.run(ctx, db, stRefresh, func(pgx.Rows) error { held = true; return nil }, id, string(token), s.or(claim.Instant(now)))
	})
	if err == nil && !held {
		err = backend.ErrClaimLost
	}
	return err
}

// RefreshClaims implements backend.Batches: one statement, which waits for no row.
func (s *Store) RefreshClaims(ctx context.Context, claims []backend.Held, now time.Time) []error {
	errs := make([]error, len(claims))
	place := make(map[backend.Held][]int, len(claims))
	var ids, tokens []string
	for n, held := range claims {
		if errs[n] = backend.CheckClaim(held.Run, held.Token); errs[n] != nil {
			continue
		}
		errs[n] = backend.ErrClaimLost
		if place[held] == nil {
			ids, tokens = append(ids, held.Run), append(tokens, string(held.Token))
		}
		place[held] = append(place[held], n)
	}
	if len(ids) == 0 {
		return errs
	}
	err := s.try(ctx, "refresh claims", always, func(db session) error {
		return s.run(ctx, db, stRefreshGroup, func(r pgx.Rows) error {
			var held backend.Held
			var token string
			var refreshed bool
			if err := scan(r, &held.Run, &token, &refreshed); err != nil {
				return err
			}
			held.Token = claim.Token(token)
			for _, n := range place[held] {
				if errs[n] = nil; !refreshed {
					errs[n] = backend.ErrBusy
				}
			}
			return nil
		}, ids, tokens, s.or(claim.Instant(now)))
	})
	if err != nil {
		for _, places := range place {
			for _, n := range places {
				errs[n] = err
			}
		}
	}
	return errs
}

// ReleaseClaim implements backend.Runs (clause K8).
func (s *Store) ReleaseClaim(ctx context.Context, id string, token claim.Token, p claim.ReleasePolicy) error {
	p, err := backend.CheckRelease(id, token, p)
	if err != nil {
		return err
	}
	released := false
	err = s.try(ctx, "release claim", always, func(db session) error {
		return s.run(ctx, db, stRelease, func(pgx.Rows) error { released = true; return nil },
			id, string(token), s.or(p.Now), p.After.Microseconds(), p.Refund)
	})
	if err == nil && released {
		s.hub.broadcast()
	}
	return err
}

// AbandonClaim implements backend.Runs (clause K9).
func (s *Store) AbandonClaim(ctx context.Context, id string, token claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	p, err := backend.CheckAbandon(id, token, p)
	if err != nil {
		return claim.Stale, err
	}
	delays := []int64{p.RetryAfter.Microseconds()}
	backsOff := p.NeverPoison && p.Backoff != (claim.Backoff{})
	if backsOff {
		delays = delays[:0]
		for n := range 31 { // from here on the delay does not grow
			delays = append(delays, p.Backoff.Delay(n).Microseconds())
		}
	}
	var late bool
	var retry *bool
	err = s.try(ctx, "abandon claim", always, func(db session) error {
		return s.run(ctx, db, stAbandon, func(r pgx.Rows) error { return scan(r, &late, &retry) },
			id, string(token), p.ExpectedSeq, s.or(p.Now), int32(min(p.MaxAbandons, maxCount)), p.NeverPoison, instantOrNil(p.RetryAt), delays, backsOff)
	})
	switch {
	case err != nil:
		return claim.Stale, err
	case late: // the clock has passed retry-at
		return claim.Stale, &backend.ArgumentError{Argument: "retry-at", Reason: "must not precede now"}
	case retry == nil:
		return claim.Stale, nil
	case *retry:
		s.hub.broadcast()
		return claim.Rescheduled, nil
	}
	return claim.Poisoned, nil
}

// RetryPoisonedRun implements backend.Runs (clause K10).
func (s *Store) RetryPoisonedRun(ctx context.Context, scope backend.Scope, id string, now time.Time) error {
	if err := backend.CheckRun(scope, id); err != nil {
		return err
	}
	found, finished, poisoned := false, false, false
	err := s.try(ctx, "retry poisoned run", always, func(db session) error {
		return s.run(ctx, db, stRecover, func(r pgx.Rows) error {
			found = true
			return scan(r, &finished, &poisoned)
		}, id, ownerArg(scope), s.or(claim.Instant(now)))
	})
	switch {
	case err != nil:
		return err
	case !found:
		return backend.ErrNotFound
	case finished:
		return backend.ErrInactiveRun
	case poisoned:
		s.wake()
	}
	return nil
}
