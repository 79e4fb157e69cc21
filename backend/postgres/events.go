package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
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
	var body []byte
	if err := v.one(ctx, "fetch event", stEventFetch, []any{&owner, &body}, id, ownerArg(scope), seq); err != nil {
		return run.Event{}, err
	}
	return backend.OpenEvent(v.s.opts.Sealer, ownerOf(owner), id, seq, body)
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
	e, err := backend.OpenEvent(v.s.opts.Sealer, ownerOf(owner), id, *seq, body)
	if err != nil {
		return nil, err
	}
	return &e, nil
}

func (v view) ListEvents(ctx context.Context, scope backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
	if err := backend.CheckEventQuery(scope, id, q); err != nil {
		return backend.EventPage{}, err
	}
	var page backend.EventPage
	found := false
	begin := func() { page, found = backend.EventPage{Next: q.After}, false }
	err := v.s.each(ctx, v, "list events", stEventList, begin, func(r pgx.Rows) error {
		found = true
		var owner string
		var oldest, latest, seq *int64
		var body []byte
		if err := scan(r, &owner, &oldest, &latest, &seq, &body); err != nil {
			return err
		}
		if oldest != nil {
			page.Oldest, page.Latest = *oldest, *latest
		}
		if seq == nil {
			return nil
		}
		if len(page.Events) == q.Limit {
			page.HasMore = true
			return nil
		}
		e, err := backend.OpenEvent(v.s.opts.Sealer, ownerOf(owner), id, *seq, body)
		if err != nil {
			return err
		}
		page.Events, page.Next = append(page.Events, e), e.Seq
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

// events are the events of a proposal as arguments: parallel arrays.
type events struct {
	seqs        []int64
	checkpoints []*string // the commit's id, beside its closing event
	plain       [][]byte  // the canonical content
	bodies      [][]byte  // what is stored of it
	digests     [][]byte  // beside bodies that are sealed; nil when the store does not seal
}

// settle looks at the events that a statement took for others than those stored, since it can
// only compare bytes: those that are equal under another key, or sealed here and plain there, are left out
// from now on, as they are stored already (clause E1). Otherwise it answers backend.EventConflict.
func (e *events) settle(ctx context.Context, s *Store, db session, owner backend.Owner, id string, conflict int64) error {
	same := make(map[int64]bool)
	err := s.run(ctx, db, stEventStored, func(r pgx.Rows) error {
		var seq int64
		var body, digest []byte
		if err := scan(r, &seq, &body, &digest); err != nil {
			return err
		}
		n, found := slices.BinarySearch(e.seqs, seq)
		if !found {
			return nil
		}
		equal, err := backend.SameStoredEvent(s.opts.Sealer, owner, id, seq, body, digest, e.plain[n])
		if err == nil && !equal {
			err = backend.EventConflict(seq)
		}
		same[seq] = true
		return err
	}, id, e.seqs)
	if err != nil {
		return err
	}
	if !same[conflict] {
		return backend.EventConflict(conflict)
	}
	var left events
	for n, seq := range e.seqs {
		if same[seq] {
			continue
		}
		left.seqs, left.checkpoints = append(left.seqs, seq), append(left.checkpoints, e.checkpoints[n])
		left.plain, left.bodies = append(left.plain, e.plain[n]), append(left.bodies, e.bodies[n])
		if e.digests != nil {
			left.digests = append(left.digests, e.digests[n])
		}
	}
	*e = left
	return nil
}
