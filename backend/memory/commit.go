package memory

import (
	"context"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/run"
)

// Commit applies a proposal under its fence (clauses T1, T2, T5).
func (s *Store) Commit(ctx context.Context, scope backend.Scope, c backend.Commit) (backend.Committed, error) {
	c, err := backend.CheckCommit(scope, c, s.limits)
	if err != nil {
		return backend.Committed{}, err
	}
	return s.commit(ctx, scope, c, (*lock).acquire)
}

// commit applies a checked commit, once it has the run's lock.
func (s *Store) commit(ctx context.Context, scope backend.Scope, c backend.Commit, acquire func(*lock, context.Context) error) (backend.Committed, error) {
	if err := run.CheckWritable(c.Document, s.format); err != nil {
		return backend.Committed{}, err
	}
	if err := s.enter(ctx, "commit: begun"); err != nil {
		return backend.Committed{}, err
	}
	r, _, err := s.visible(scope, c.Document.ID)
	if err != nil {
		return backend.Committed{}, err
	}
	s.yield("commit: found")
	if err := acquire(&r.lock, ctx); err != nil {
		return backend.Committed{}, err
	}
	done, err := s.commitLocked(r, c)
	r.lock.release()
	if err == nil && !done.Replayed {
		s.watchers.announce()
	}
	s.yield("commit: done")
	return done, err
}

func (s *Store) commitLocked(r *row, c backend.Commit) (backend.Committed, error) {
	was := r.now.Load()
	if was == nil {
		return backend.Committed{}, backend.ErrNotFound
	}
	if err := backend.CheckIdentity(backend.IdentityOf(was.document), c.Document); err != nil {
		return backend.Committed{}, err
	}
	if was.current() == c.CheckpointID {
		return backend.Committed{Replayed: true}, nil
	}
	stored := checkpoint.Fence{Token: was.claim.Token, Seq: was.document.Seq}
	if err := stored.Check(checkpoint.Fence{Token: c.Token, Seq: c.Expected}); err != nil {
		return backend.Committed{}, err
	}
	return backend.Committed{}, s.apply(r, was, c.Proposal, c.CheckpointID, was.graph)
}

// apply replaces what the locked run holds by what a proposal makes of it.
func (s *Store) apply(r *row, was *snapshot, p run.Proposal, id checkpoint.ID, g *published) error {
	next, err := was.next(p, id, g)
	if err != nil {
		return err
	}
	st := p.Schedule.Apply(was.claim, s.clock.or(p.Now))
	r.now.Store(&snapshot{committed: next, claim: st})
	s.due.mu.Lock()
	s.due.set(r, &g.due, &st)
	s.due.mu.Unlock()
	if p.Document.Status.Terminal() {
		s.list.finish(r, micros(p.Document.FinishedAt))
	}
	return nil
}
