package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// racesLost is how often a mutation's decision may be overtaken by another writer of
// its run before the writer is held for it.
const racesLost = 3

// MutateRun implements backend.Runs (clause T3). fn decides on a snapshot, with nothing
// locked, and the decision is stored if the run has not moved since; else fn decides
// again. A run that moves quicker than fn decides is settled under the write lock: fn is
// then called while the whole file waits, for Options.MutateTimeout at most, after which
// the mutation fails with a transient *backend.InfrastructureError and what fn answers no
// longer counts. fn is always called in the caller's goroutine, and must not use the store.
func (s *Store) MutateRun(ctx context.Context, scope backend.Scope, id string, commit checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
	if err := backend.CheckMutate(scope, id, commit, fn); err != nil {
		return backend.Mutated{}, err
	}
	m := &mutation{s: s, scope: scope, id: id, commit: commit, fn: fn}
	for range racesLost {
		err := s.readers.snapshot(ctx, func(c *conn) error { return m.read(ctx, c) })
		if err != nil || m.answer.Replayed {
			return m.answered(fail("mutate run", err, false))
		}
		if done, err := m.decide(fn); err != nil || done {
			return m.answered(err)
		}
		point("mutate.decided")
		err = s.writer.do(ctx, &operation{name: "mutate run", wakes: true, run: func(c *conn, _ bool) error { return m.store(c) }})
		if !errors.Is(err, errRace) {
			return m.answered(err)
		}
	}
	return m.settle(ctx)
}

// answered is the answer, and nothing of it beside an error.
func (m *mutation) answered(err error) (backend.Mutated, error) {
	if err != nil {
		return backend.Mutated{}, err
	}
	return m.answer, nil
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

	// The state that a decision was made on.
	number  int64
	owner   string
	seq     int64
	last    string // checkpoint id
	current *run.Document

	// The decision.
	next     run.Proposal
	document []byte
	events   []backend.EventRow
	answer   backend.Mutated
}

// read reads the current state, or finds that the mutation has been stored before.
func (m *mutation) read(ctx context.Context, c *conn) error {
	m.answer, m.number = backend.Mutated{}, 0
	var body []byte
	err := c.query(ctx, stMutateRead, func(r row) error {
		if m.scope.Sees(ownerOf(r.text(1))) {
			m.number, m.owner, m.seq, m.last, body = r.int(0), r.text(1), r.int(2), r.text(3), r.blob(4)
		}
		return nil
	}, m.id)
	if err != nil {
		return err
	}
	if m.number == 0 {
		return backend.ErrNotFound
	}
	if m.current, err = backend.OpenDocument(m.s.opts.Sealer, ownerOf(m.owner), m.id, m.seq, body); err != nil {
		return err
	}
	stored := m.last == string(m.commit)
	if !stored {
		err = c.query(ctx, stRunCheckpointExists, func(row) error { stored = true; return nil }, m.number, string(m.commit))
	}
	if stored {
		m.answer = backend.Mutated{Committed: true, Replayed: true, Document: m.current}
	}
	return err
}

// decide asks fn. It is done when there is nothing to store.
func (m *mutation) decide(fn backend.MutateFunc) (done bool, err error) {
	decision, err := fn(m.current)
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
	m.document, m.events, err = m.s.encode(ownerOf(m.owner), m.next, m.commit)
	return false, err
}

// store writes the decision, if the run is still what it was made on.
func (m *mutation) store(c *conn) error {
	ctx := context.Background()
	d := m.next.Document
	if d.Graph != m.current.Graph {
		found := false
		err := c.query(ctx, stGraphExists, func(row) error { found = true; return nil }, m.owner, d.Graph.ID, d.Graph.Hash)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("%w: graph %s has no version %s", backend.ErrInvalidMutation, d.Graph.ID, d.Graph.Hash)
		}
	}
	after := m.next.Schedule.Apply(claim.State{}, m.s.clock.or(m.next.Now))
	n, err := c.exec(ctx, stMutate, m.number, m.seq, m.last, string(m.commit), d.Graph.Hash, string(d.Status),
		d.UpdatedAt.UnixMicro(), micros(d.FinishedAt), micros(after.Wake), d.Seq, string(m.next.Type))
	if err != nil {
		return err
	}
	if n == 0 {
		return errRace
	}
	point("mutate.row")
	if _, err := c.exec(ctx, stDocumentUpdate, m.number, m.document); err != nil {
		return err
	}
	h := m.s.history(ownerOf(m.owner), m.id, m.number)
	last, err := h.last(ctx, c)
	if err != nil {
		return err
	}
	if err := h.append(ctx, c, last, m.next.Events, m.events, m.commit); err != nil {
		return err
	}
	point("mutate.events")
	m.answer.Committed, m.answer.Document = true, d
	return nil
}

// errDecided: the decision leaves nothing to store.
var errDecided = errors.New("decided")

// settle reads, decides and stores under the write lock. fn still runs in the caller's
// goroutine, so that its panics are the caller's.
func (m *mutation) settle(ctx context.Context) (backend.Mutated, error) {
	h := &hold{asked: make(chan struct{}), decided: make(chan error), left: make(chan struct{})}
	defer close(h.left)
	op := &operation{name: "mutate run", wakes: true, run: func(c *conn, _ bool) error { return m.hold(h, c) }}
	m.s.writer.submit(op)
	var refusal error
	for {
		select {
		case <-h.asked:
			done, err := m.decide(m.fn)
			if refusal = err; done {
				err = errDecided
			}
			select {
			case h.decided <- err:
			case <-op.done:
			}
		case <-op.done:
			if errors.Is(op.err, errDecided) {
				return m.answered(refusal)
			}
			return m.answered(op.err)
		case <-ctx.Done():
			if m.s.writer.withdraw(op) {
				return backend.Mutated{}, context.Cause(ctx)
			}
			ctx = context.WithoutCancel(ctx)
		}
	}
}

// hold is how the writer asks for a decision while it holds the lock.
type hold struct {
	asked   chan struct{}
	decided chan error
	left    chan struct{} // closed when nobody decides any more
	late    error         // set once the time was up; the decision is then not waited for again
}

func (m *mutation) hold(h *hold, c *conn) error {
	if h.late != nil {
		return h.late
	}
	if err := m.read(context.Background(), c); err != nil || m.answer.Replayed {
		return err
	}
	timer := time.NewTimer(m.s.opts.MutateTimeout)
	defer timer.Stop()
	select {
	case h.asked <- struct{}{}:
	case <-h.left:
		return errDecided
	}
	select {
	case err := <-h.decided:
		if err != nil {
			return err
		}
		return m.store(c)
	case <-h.left:
		return errDecided
	case <-timer.C:
		h.late = &backend.InfrastructureError{
			Op: "mutate run", Nature: backend.Transient,
			Err: fmt.Errorf("the function held the writer for longer than %v: it must be quick and must not use the store", m.s.opts.MutateTimeout),
		}
		return h.late
	}
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
