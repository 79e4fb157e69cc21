package sqlite

import (
	"context"
	"iter"

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
	var e *run.Event
	err := v.history(ctx, "fetch event", scope, id, func(db session, h history) error {
		return db.query(ctx, stEventAt, func(r row) (err error) {
			e, err = backend.EventAt(h.sealer, h.owner, id, r.int(0), r.blob(1), seq)
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
			e, err = backend.EventAt(h.sealer, h.owner, id, r.int(0), r.blob(1), r.int(0))
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
		err := db.query(ctx, stEventBounds, func(r row) (err error) {
			page.Latest = r.int(2)
			page.Oldest, err = backend.FirstEvent(id, r.int(0), r.blob(1))
			return err
		}, h.number, int64(backend.EventRowHead))
		if err != nil {
			return err
		}
		return db.query(ctx, stEventList, func(r row) error {
			for e, err := range h.events(r.int(0), r.blob(1), q.After) {
				if len(page.Events) == q.Limit {
					page.HasMore = true
					return errStop
				}
				if err != nil {
					return err
				}
				page.Events, page.Next = append(page.Events, e), e.Seq
			}
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

// history is the events of one run, and what is needed to open them and to write more.
type history struct {
	sealer backend.Sealer
	format int
	owner  backend.Owner
	run    string
	number int64
}

func (s *Store) history(owner backend.Owner, id string, number int64) history {
	return history{sealer: s.opts.Sealer, format: s.opts.WriteFormat, owner: owner, run: id, number: number}
}

// events are those of a stored row that come after a sequence.
func (h history) events(seq int64, body []byte, after int64) iter.Seq2[run.Event, error] {
	return backend.OpenEvents(h.sealer, h.owner, h.run, seq, body, after)
}

// last is the sequence of the last event, 0 for none.
func (h history) last(ctx context.Context, db session) (seq int64, err error) {
	err = db.query(ctx, stEventLast, func(r row) error { seq = r.int(0); return nil }, h.number)
	return seq, err
}

// append stores the events of a commit, whose rows were made before. Where the history has come
// as far already, by its last event, each is looked for: one that is stored is no change, another one
// under its sequence is a conflict (clause E1).
func (h history) append(ctx context.Context, db session, last int64, events []run.Event, rows []backend.EventRow, id checkpoint.ID) error {
	if len(rows) > 0 && rows[0].First <= last {
		left, err := h.missing(ctx, db, events)
		if err != nil {
			return err
		}
		if rows, err = backend.PackEvents(h.sealer, h.owner, id, left, h.format); err != nil {
			return err
		}
	}
	for i := range rows {
		r := &rows[i]
		if _, err := db.exec(ctx, stEventInsert, h.number, r.Seq, orNull(string(r.CheckpointID)), r.Body, blobOrNull(r.Digest)); err != nil {
			return err
		}
	}
	return nil
}

// missing are the events that are not stored yet.
func (h history) missing(ctx context.Context, db session, events []run.Event) ([]run.Event, error) {
	end := events[len(events)-1].Seq
	err := db.query(ctx, stEventFrom, func(r row) error {
		stored := backend.EventRow{Seq: r.int(0), Body: r.blob(1), Digest: r.blob(2)}
		var err error
		if events, err = backend.NewEvents(h.sealer, h.owner, stored, events); err == nil && (stored.Seq >= end || len(events) == 0) {
			err = errStop
		}
		return err
	}, h.number, events[0].Seq)
	return events, err
}

// blobOrNull is null for no bytes.
func blobOrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}
