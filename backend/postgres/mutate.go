package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// racesLost is how often a mutation's decision may be overtaken by another writer of
// its run before the run's row is locked for it.
const racesLost = 3

// MutateRun implements backend.Runs (clause T3). fn decides with nothing locked, and the
// decision is stored if the run has not moved since; else fn decides again. A run that moves
// quicker than fn decides is settled under its row's lock: fn is then called while other
// writers of the run wait, for Options.MutateTimeout at most, after which what fn answers no
// longer counts and the mutation fails with a transient *backend.InfrastructureError. fn is
// always called in the caller's goroutine, and must not use the store.
func (s *Store) MutateRun(ctx context.Context, scope backend.Scope, id string, commit checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
	if err := backend.CheckMutate(scope, id, commit, fn); err != nil {
		return backend.Mutated{}, err
	}
	m := &mutation{s: s, scope: scope, id: id, commit: commit, fn: fn}
	for lost := 0; ; {
		// The whole of it is tried again, so that a decision whose answer was lost is found stored.
		err := s.try(ctx, "mutate run", always, func(db session) error {
			if lost >= racesLost {
				return m.settle(ctx)
			}
			if err := m.read(ctx, db); err != nil || m.answer.Replayed {
				return err
			}
			if done, err := m.decide(); err != nil || done {
				return err
			}
			return m.store(ctx, db)
		})
		switch {
		case errors.Is(err, errRace):
			lost++
		case err != nil:
			return backend.Mutated{}, err
		default:
			if m.answer.Committed && !m.answer.Replayed {
				s.wake()
			}
			return m.answer, nil
		}
	}
}

// errRace: the run has moved since the decision was made.
var errRace = errors.New("the run has moved")

// mutation is one MutateRun at work.
type mutation struct {
	s      *Store
	scope  backend.Scope
	id     string
	commit checkpoint.ID
	fn     backend.MutateFunc

	// What a decision is made on.
	owner   backend.Owner
	current *run.Document

	// The decision.
	next     run.Proposal
	document []byte
	events   events
	answer   backend.Mutated
}

// read reads the current state, or finds that the mutation has been stored before.
func (m *mutation) read(ctx context.Context, db session) error {
	m.answer = backend.Mutated{}
	found, before := false, false
	var owner string
	var seq int64
	var body []byte
	err := m.s.run(ctx, db, stMutateRead, func(r pgx.Rows) error {
		found = true
		return scan(r, &owner, &seq, &body, &before)
	}, m.id, ownerArg(m.scope), string(m.commit))
	switch {
	case err != nil:
		return err
	case !found:
		return backend.ErrNotFound
	}
	m.owner = ownerOf(owner)
	if m.current, err = backend.OpenDocument(m.s.opts.Sealer, m.owner, m.id, seq, body); err != nil {
		return err
	}
	if before {
		m.answer = backend.Mutated{Committed: true, Replayed: true, Document: m.current}
	}
	return nil
}

// decide asks fn. It is done when there is nothing to store.
func (m *mutation) decide() (done bool, err error) {
	decision, err := m.fn(m.current)
	if err != nil {
		return true, err
	}
	m.answer = backend.Mutated{Document: m.current, Value: decision.Value}
	if decision.Proposal == nil {
		return true, nil
	}
	if m.next, err = backend.CheckMutation(m.current, *decision.Proposal, m.s.opts.Limits); err != nil {
		return true, err
	}
	m.document, m.events, err = m.s.encode(m.owner, m.next, m.commit)
	return err != nil, err
}

// store writes the decision, if the run is still what it was made on.
func (m *mutation) store(ctx context.Context, db session) error {
	d := m.next.Document
	wake, due, _ := leaves(m.next.Schedule)
	found, committed, published := false, false, false
	var seq int64
	overlap := false
	err := m.s.run(ctx, db, stMutate, func(r pgx.Rows) error {
		found = true
		return scan(r, &committed, &published, &seq, &overlap)
	},
		append(append([]any{
			m.id, m.next.Expected, d.Graph.Hash, string(d.Status), d.UpdatedAt, instantOrNil(d.FinishedAt), wake, due,
			string(m.next.Type), string(m.commit), m.document, m.s.or(m.next.Now),
		}, m.events.arguments()...), m.events.first())...)
	switch {
	case code(err) == codeUniqueViolation:
		return errRace
	case err != nil:
		return err
	case !found:
		return backend.ErrNotFound
	case committed:
		m.answer.Committed, m.answer.Document = true, d
		return nil
	case seq != m.next.Expected:
		return errRace
	case !published:
		return fmt.Errorf("%w: graph %s has no version %s", backend.ErrInvalidMutation, d.Graph.ID, d.Graph.Hash)
	case overlap:
		if err := m.events.settle(ctx, m.s, db, m.owner, m.commit); err != nil {
			return err
		}
		return m.store(ctx, db)
	}
	return fmt.Errorf("belay: the mutation of run %s matched its sequence and changed nothing", m.id)
}

// settle reads, decides and stores under the row's lock.
func (m *mutation) settle(ctx context.Context) error {
	return m.s.within(ctx, func(tx pgx.Tx) error {
		found := false
		err := m.s.run(ctx, tx, stRunLock, func(pgx.Rows) error { found = true; return nil },
			m.id, ownerArg(m.scope), strconv.FormatInt(max(1, m.s.opts.MutateTimeout.Milliseconds()), 10))
		switch {
		case err != nil:
			return err
		case !found:
			return backend.ErrNotFound
		}
		if err := m.read(ctx, tx); err != nil || m.answer.Replayed {
			return err
		}
		begun := time.Now()
		done, err := m.decide()
		if took := time.Since(begun); took > m.s.opts.MutateTimeout {
			return &backend.InfrastructureError{
				Op: "mutate run", Nature: backend.Transient,
				Err: fmt.Errorf("the function held the run for %v, longer than %v: it must be quick and must not use the store", took, m.s.opts.MutateTimeout),
			}
		}
		if err != nil || done {
			return err
		}
		return m.store(ctx, tx)
	})
}

// workable decodes a document for a claimer, who is to commit to it: one that this store
// could not write back is refused before anything is executed.
func (s *Store) workable(l claim.Lease, body []byte) (*run.Document, error) {
	d, err := backend.OpenDocument(s.opts.Sealer, l.Owner, l.Run, l.Seq, body)
	if err != nil {
		return nil, err
	}
	if err := run.CheckWritable(d, s.opts.WriteFormat); err != nil {
		return nil, err
	}
	return d, nil
}
