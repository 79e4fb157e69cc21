package postgres

import (
	"context"
	"fmt"

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
	var body []byte
	if err := v.one(ctx, "fetch event", stEventFetch, []any{&body}, id, ownerArg(scope), seq); err != nil {
		return run.Event{}, err
	}
	return decodeEvent(id, seq, body)
}

func (v view) LatestEvent(ctx context.Context, scope backend.Scope, id string) (*run.Event, error) {
	if err := backend.CheckRun(scope, id); err != nil {
		return nil, err
	}
	var seq *int64
	var body []byte
	if err := v.one(ctx, "latest event", stEventLatest, []any{&seq, &body}, id, ownerArg(scope)); err != nil || seq == nil {
		return nil, err
	}
	e, err := decodeEvent(id, *seq, body)
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
		var oldest, latest, seq *int64
		var body []byte
		if err := scan(r, &oldest, &latest, &seq, &body); err != nil {
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
		e, err := decodeEvent(id, *seq, body)
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

func decodeEvent(id string, seq int64, body []byte) (run.Event, error) {
	e, err := run.DecodeEvent(body)
	if err == nil && (e.Run != id || e.Seq != seq) {
		err = fmt.Errorf("it is event %d of run %s", e.Seq, e.Run)
	}
	if err != nil {
		return run.Event{}, &backend.CorruptError{Run: id, What: fmt.Sprintf("event %d", seq), Err: err}
	}
	return e, nil
}
