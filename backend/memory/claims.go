package memory

import (
	"context"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

// RefreshClaim moves claimed-at forward under the current token (clause K7).
func (s *Store) RefreshClaim(ctx context.Context, id string, token claim.Token, now time.Time) error {
	if err := backend.CheckClaim(id, token); err != nil {
		return err
	}
	if err := s.enter(ctx, "refresh: begun"); err != nil {
		return err
	}
	return s.refresh(ctx, id, token, s.clock.or(claim.Instant(now)), (*lock).acquire)
}

func (s *Store) refresh(ctx context.Context, id string, token claim.Token, now time.Time, acquire func(*lock, context.Context) error) error {
	r := s.row(id)
	if r == nil {
		return backend.ErrClaimLost
	}
	s.yield("refresh: found")
	lost := backend.ErrClaimLost
	_, err := s.changeClaim(ctx, r, acquire, func(was *snapshot) (claim.State, bool) {
		next, err := was.claim.Refresh(token, now)
		lost = err
		return next, err == nil
	})
	s.yield("refresh: done")
	if err != nil {
		return err
	}
	return lost
}

// ReleaseClaim gives the claim back (clause K8).
func (s *Store) ReleaseClaim(ctx context.Context, id string, token claim.Token, p claim.ReleasePolicy) error {
	p, err := backend.CheckRelease(id, token, p)
	if err != nil {
		return err
	}
	if err := s.enter(ctx, "release: begun"); err != nil {
		return err
	}
	r := s.row(id)
	if r == nil {
		return nil
	}
	p.Now = s.clock.or(p.Now)
	s.yield("release: found")
	err = s.changeWake(ctx, r, func(was *snapshot) (claim.State, bool) {
		return was.claim.Release(token, p)
	})
	s.yield("release: done")
	return err
}

// AbandonClaim hands the run back before execution began (clause K9).
func (s *Store) AbandonClaim(ctx context.Context, id string, token claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	p, err := backend.CheckAbandon(id, token, p)
	if err != nil {
		return claim.Stale, err
	}
	if p.Now.IsZero() {
		p.Now = s.clock.now()
		if err := p.Validate(); err != nil {
			return claim.Stale, err
		}
	}
	if err := s.enter(ctx, "abandon: begun"); err != nil {
		return claim.Stale, err
	}
	r := s.row(id)
	if r == nil {
		return claim.Stale, nil
	}
	s.yield("abandon: found")
	done := claim.Stale
	err = s.changeWake(ctx, r, func(was *snapshot) (next claim.State, changed bool) {
		next, done = was.claim.Abandon(token, was.document.Seq, p)
		return next, done != claim.Stale
	})
	s.yield("abandon: done")
	return done, err
}

// RetryPoisonedRun frees a poisoned run (clause K10).
func (s *Store) RetryPoisonedRun(ctx context.Context, scope backend.Scope, id string, now time.Time) error {
	if err := backend.CheckRun(scope, id); err != nil {
		return err
	}
	if err := s.enter(ctx, "retry: begun"); err != nil {
		return err
	}
	r, _, err := s.visible(scope, id)
	if err != nil {
		return err
	}
	now = s.clock.or(claim.Instant(now))
	s.yield("retry: found")
	answer := backend.ErrNotFound
	err = s.changeWake(ctx, r, func(was *snapshot) (claim.State, bool) {
		if was.document.Status.Terminal() {
			answer = backend.ErrInactiveRun
			return claim.State{}, false
		}
		answer = nil
		return was.claim.Recover(now)
	})
	s.yield("retry: done")
	if err != nil {
		return err
	}
	return answer
}

// changeWake is changeClaim for what may make the run due, or poison it: it is announced.
func (s *Store) changeWake(ctx context.Context, r *row, change func(*snapshot) (claim.State, bool)) error {
	changed, err := s.changeClaim(ctx, r, (*lock).acquire, change)
	if changed {
		s.watchers.announce()
	}
	return err
}

// changeClaim changes the claim of a run and nothing else (clause A5), if change says so.
// For a run that was pruned, change is not called.
func (s *Store) changeClaim(ctx context.Context, r *row, acquire func(*lock, context.Context) error, change func(*snapshot) (claim.State, bool)) (changed bool, err error) {
	if err := acquire(&r.lock, ctx); err != nil {
		return false, err
	}
	defer r.lock.release()
	was := r.now.Load()
	if was == nil {
		return false, nil
	}
	next, changed := change(was)
	if !changed {
		return false, nil
	}
	r.now.Store(&snapshot{committed: was.committed, claim: next})
	s.due.mu.Lock()
	s.due.set(r, &was.graph.due, &next)
	s.due.mu.Unlock()
	return true, nil
}
