package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/run"
)

// FetchEvent implements backend.Events (clauses E2, E3).
func (s *Store) FetchEvent(ctx context.Context, scope backend.Scope, id string, seq int64) (run.Event, error) {
	return s.view().FetchEvent(ctx, scope, id, seq)
}

// LatestEvent implements backend.Events (clauses E2, E3).
func (s *Store) LatestEvent(ctx context.Context, scope backend.Scope, id string) (*run.Event, error) {
	return s.view().LatestEvent(ctx, scope, id)
}

// ListEvents implements backend.Events (clauses E2, E3).
func (s *Store) ListEvents(ctx context.Context, scope backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
	return s.view().ListEvents(ctx, scope, id, q)
}

func (v view) FetchEvent(ctx context.Context, scope backend.Scope, id string, seq int64) (run.Event, error) {
	if err := backend.CheckEvent(scope, id, seq); err != nil {
		return run.Event{}, err
	}
	var owner string
	var last *int64
	var body []byte
	if err := v.one(ctx, "fetch event", stEventFetch, []any{&owner, &last, &body}, id, ownerArg(scope), seq); err != nil {
		return run.Event{}, err
	}
	if last == nil {
		return run.Event{}, backend.ErrNotFound
	}
	e, err := backend.EventAt(v.s.opts.Sealer, ownerOf(owner), id, *last, body, seq)
	switch {
	case err != nil:
		return run.Event{}, err
	case e == nil: // it would be between two rows
		return run.Event{}, backend.ErrNotFound
	}
	return *e, nil
}

func (v view) LatestEvent(ctx context.Context, scope backend.Scope, id string) (*run.Event, error) {
	if err := backend.CheckRun(scope, id); err != nil {
		return nil, err
	}
	var owner string
	var seq *int64
	var body []byte
	if err := v.one(ctx, "latest event", stEventLatest, []any{&owner, &seq, &body}, id, ownerArg(scope)); err != nil || seq == nil {
		return nil, err
	}
	return backend.EventAt(v.s.opts.Sealer, ownerOf(owner), id, *seq, body, *seq)
}

func (v view) ListEvents(ctx context.Context, scope backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
	if err := backend.CheckEventQuery(scope, id, q); err != nil {
		return backend.EventPage{}, err
	}
	var page backend.EventPage
	found := false
	begin := func() { page, found = backend.EventPage{Next: q.After}, false }
	err := v.s.each(ctx, v, "list events", stEventList, begin, func(r pgx.Rows) (err error) {
		if page.HasMore {
			return nil
		}
		var owner string
		var oldest, latest, seq *int64
		var head, body []byte
		if err := scan(r, &owner, &oldest, &head, &latest, &seq, &body); err != nil {
			return err
		}
		if !found && oldest != nil {
			if page.Oldest, err = backend.FirstEvent(id, *oldest, head); err != nil {
				return err
			}
			page.Latest = *latest
		}
		if found = true; seq == nil {
			return nil
		}
		for e, err := range backend.OpenEvents(v.s.opts.Sealer, ownerOf(owner), id, *seq, body, q.After) {
			if page.HasMore = err == nil && len(page.Events) == q.Limit; err != nil || page.HasMore {
				return err
			}
			page.Events, page.Next = append(page.Events, e), e.Seq
		}
		return nil
	}, id, ownerArg(scope), q.After, int64(q.Limit+1))
	if err == nil && !found {
		err = backend.ErrNotFound
	}
	if err != nil {
		return backend.EventPage{}, err
	}
	return page, nil
}

// events are the events of a proposal, and the rows that they become.
type events struct {
	events []run.Event
	rows   []backend.EventRow
	// settled: what is stored already is left out.
	settled bool
}

// arguments are the rows as parallel arrays.
func (e *events) arguments() []any {
	n := len(e.rows)
	seqs, checkpoints, bodies, digests := make([]int64, n), make([]*string, n), make([][]byte, n), make([][]byte, n)
	for i := range e.rows {
		r := &e.rows[i]
		seqs[i], checkpoints[i], bodies[i], digests[i] = r.Seq, textOrNil(r.CheckpointID), r.Body, r.Digest
	}
	return []any{seqs, checkpoints, bodies, digests}
}

// first is the sequence from which on a run must have no events for these to be appended as they
// are; nil: any may be there.
func (e *events) first() *int64 {
	if len(e.events) == 0 || e.settled {
		return nil
	}
	return &e.events[0].Seq
}

// settle looks at the stored events that these may be among: those that are equal are left out from now
// on, since they are stored already (clause E1), and the others get rows of their own. Otherwise it
// answers backend.EventConflict. Nobody appends to the run without moving its sequence, so that
// what was read stays true for as long as the fence matches.
func (e *events) settle(ctx context.Context, s *Store, db session, owner backend.Owner, commit checkpoint.ID) error {
	left := e.events
	first, last := left[0].Seq, left[len(left)-1].Seq
	err := s.run(ctx, db, stEventStored, func(r pgx.Rows) (err error) {
		var row backend.EventRow
		if err := scan(r, &row.Seq, &row.Body, &row.Digest); err != nil {
			return err
		}
		left, err = backend.NewEvents(s.opts.Sealer, owner, row, left)
		return err
	}, e.events[0].Run, first, last)
	if err != nil {
		return err
	}
	rows, err := backend.PackEvents(s.opts.Sealer, owner, commit, left, 1)
	*e = events{events: left, rows: rows, settled: true}
	return err
}
