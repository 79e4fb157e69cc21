package sqlite

import (
	"context"

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
	var e *run.Event
	err := v.history(ctx, "fetch event", scope, id, func(db session, h history) error {
		return db.query(ctx, stEventBody, func(r row) (err error) {
			e, err = h.event(seq, r.blob(0))
			return err
		}, h.number, seq)
	})
	switch {
	case err != nil:
		return run.Event{}, err
	case e == nil:
		return run.Event{}, backend.ErrNotFound
	}
	return *e, nil
}

func (v view) LatestEvent(ctx context.Context, scope backend.Scope, id string) (*run.Event, error) {
	if err := backend.CheckRun(scope, id); err != nil {
		return nil, err
	}
	var e *run.Event
	err := v.history(ctx, "latest event", scope, id, func(db session, h history) error {
		return db.query(ctx, stEventLatest, func(r row) (err error) {
			e, err = h.event(r.int(0), r.blob(1))
			return err
		}, h.number)
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (v view) ListEvents(ctx context.Context, scope backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
	if err := backend.CheckEventQuery(scope, id, q); err != nil {
		return backend.EventPage{}, err
	}
	page := backend.EventPage{Next: q.After}
	err := v.history(ctx, "list events", scope, id, func(db session, h history) error {
		err := db.query(ctx, stEventBounds, func(r row) error {
			page.Oldest, page.Latest = r.int(0), r.int(1)
			return nil
		}, h.number)
		if err != nil {
			return err
		}
		return db.query(ctx, stEventList, func(r row) error {
			if len(page.Events) == q.Limit {
				page.HasMore = true
				return errStop
			}
			e, err := h.event(r.int(0), r.blob(1))
			if err != nil {
				return err
			}
			page.Events, page.Next = append(page.Events, *e), e.Seq
			return nil
		}, h.number, q.After, int64(q.Limit+1))
	})
	if err != nil {
		return backend.EventPage{}, err
	}
	return page, nil
}

// history lends a session on a visible run's events.
func (v view) history(ctx context.Context, op string, scope backend.Scope, id string, fn func(db session, h history) error) error {
	err := v.same(ctx, func(db session) error {
		h := history{sealer: v.sealer, run: id}
		err := db.query(ctx, stRunNumber, func(r row) error {
			h.number, h.owner = r.int(0), ownerOf(r.text(1))
			return nil
		}, id, ownerArg(scope))
		if err != nil {
			return err
		}
		if h.number == 0 {
			return backend.ErrNotFound
		}
		return fn(db, h)
	})
	return fail(op, err, false)
}

// history is the events of one run, and what is needed to open them.
type history struct {
	sealer backend.Sealer
	owner  backend.Owner
	run    string
	number int64
}

func (s *Store) history(owner backend.Owner, id string, number int64) history {
	return history{sealer: s.opts.Sealer, owner: owner, run: id, number: number}
}

func (h history) event(seq int64, body []byte) (*run.Event, error) {
	e, err := backend.OpenEvent(h.sealer, h.owner, h.run, seq, body)
	if err != nil {
		return nil, err
	}
	return &e, nil
}
