package memory

import (
	"context"
	"fmt"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/run"
)

// optimisticMutations is how often a mutation is decided without a lock on the run
// before it is decided under it, so that a busy run does not starve it.
const optimisticMutations = 3

// MutateRun lets fn decide on the current document (clauses T3, T5). It first compares
// and sets; a run that is changed meanwhile more than a few times is locked, and then fn
// is called while the lock is held: an operation of fn's on the same run would then wait
// for itself.
func (s *Store) MutateRun(ctx context.Context, scope backend.Scope, id string, commit checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
	if err := backend.CheckMutate(scope, id, commit, fn); err != nil {
		return backend.Mutated{}, err
	}
	if err := s.enter(ctx, "mutate: begun"); err != nil {
		return backend.Mutated{}, err
	}
	r, _, err := s.visible(scope, id)
	if err != nil {
		return backend.Mutated{}, err
	}
	m := mutation{store: s, row: r, commit: commit, fn: fn}
	done, err := m.run(ctx)
	if err == nil && done.Committed && !done.Replayed {
		s.watchers.announce()
	}
	s.yield("mutate: done")
	return done, err
}

// mutation is one MutateRun.
type mutation struct {
	store  *Store
	row    *row
	commit checkpoint.ID
	fn     backend.MutateFunc
}

func (m *mutation) run(ctx context.Context) (backend.Mutated, error) {
	for range optimisticMutations {
		m.store.yield("mutate: found")
		was := m.row.now.Load()
		done, p, err := m.decide(was)
		if err != nil || p == nil {
			return done, err
		}
		m.store.yield("mutate: decided")
		if err := m.row.lock.acquire(ctx); err != nil {
			return backend.Mutated{}, err
		}
		now := m.row.now.Load()
		if now == nil || now.committed != was.committed {
			m.row.lock.release()
			continue
		}
		err = m.apply(now, p)
		m.row.lock.release()
		if err != nil {
			return backend.Mutated{}, err
		}
		return done, nil
	}
	m.store.yield("mutate: starved")
	if err := m.row.lock.acquire(ctx); err != nil {
		return backend.Mutated{}, err
	}
	defer m.row.lock.release()
	now := m.row.now.Load()
	done, p, err := m.decide(now)
	if err != nil || p == nil {
		return done, err
	}
	if err := m.apply(now, p); err != nil {
		return backend.Mutated{}, err
	}
	return done, nil
}

// decide calls fn on what is stored. Without a proposal there is nothing to apply.
func (m *mutation) decide(was *snapshot) (backend.Mutated, *run.Proposal, error) {
	if was == nil {
		return backend.Mutated{}, nil, backend.ErrNotFound
	}
	current, err := was.read()
	if err != nil {
		return backend.Mutated{}, nil, err
	}
	if was.history.holds(m.commit) {
		return backend.Mutated{Committed: true, Replayed: true, Document: current}, nil, nil
	}
	decision, err := m.fn(current)
	if err != nil {
		return backend.Mutated{}, nil, err
	}
	done := backend.Mutated{Document: current, Value: decision.Value}
	if decision.Proposal == nil {
		return done, nil, nil
	}
	p, err := backend.CheckMutation(current, *decision.Proposal, m.store.limits)
	if err != nil {
		return backend.Mutated{}, nil, err
	}
	if err := run.CheckWritable(p.Document, m.store.format); err != nil {
		return backend.Mutated{}, nil, err
	}
	done.Committed, done.Document = true, p.Document
	return done, &p, nil
}

// apply commits a decision on what the locked run holds.
func (m *mutation) apply(was *snapshot, p *run.Proposal) error {
	s, g := m.store, was.graph
	if p.Document.Graph != g.ref {
		if g = s.graphs.hold(m.row.owner.id, p.Document.Graph); g == nil {
			return fmt.Errorf("%w: the version %s of graph %s is not stored", backend.ErrInvalidMutation, p.Document.Graph.Hash, p.Document.Graph.ID)
		}
	}
	if err := s.apply(m.row, was, *p, m.commit, g); err != nil {
		if g != was.graph {
			s.graphs.drop(g)
		}
		return err
	}
	if g != was.graph {
		s.graphs.drop(was.graph)
	}
	return nil
}
