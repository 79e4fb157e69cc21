package memory

import (
	"context"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// FetchEvent reads one event (clause E2).
func (s *Store) FetchEvent(ctx context.Context, scope backend.Scope, id string, seq int64) (run.Event, error) {
	if err := backend.CheckEvent(scope, id, seq); err != nil {
		return run.Event{}, err
	}
	if err := s.enter(ctx, "fetch event: begun"); err != nil {
		return run.Event{}, err
	}
	_, stored, err := s.visible(scope, id)
	if err != nil {
		return run.Event{}, err
	}
	events := stored.history.after(seq-1, 1)
	if len(events) == 0 || events[0].Seq != seq {
		return run.Event{}, backend.ErrNotFound
	}
	return stored.readEvent(events[0])
}

// LatestEvent reads the last event, if there is one (clause E2).
func (s *Store) LatestEvent(ctx context.Context, scope backend.Scope, id string) (*run.Event, error) {
	if err := backend.CheckRun(scope, id); err != nil {
		return nil, err
	}
	if err := s.enter(ctx, "latest event: begun"); err != nil {
		return nil, err
	}
	_, stored, err := s.visible(scope, id)
	if err != nil {
		return nil, err
	}
	events := stored.history.after(stored.history.last()-1, 1)
	if len(events) == 0 {
		return nil, nil
	}
	e, err := stored.readEvent(events[0])
	if err != nil {
		return nil, err
	}
	return &e, nil
}

// ListEvents lists events, ascending (clauses E2, E3).
func (s *Store) ListEvents(ctx context.Context, scope backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
	if err := backend.CheckEventQuery(scope, id, q); err != nil {
		return backend.EventPage{}, err
	}
	if err := s.enter(ctx, "list events: begun"); err != nil {
		return backend.EventPage{}, err
	}
	_, stored, err := s.visible(scope, id)
	if err != nil {
		return backend.EventPage{}, err
	}
	page := backend.EventPage{
		Events: stored.history.after(q.After, q.Limit),
		Next:   q.After,
		Oldest: stored.history.oldest(),
		Latest: stored.history.last(),
	}
	for _, e := range page.Events {
		if _, err := stored.readEvent(e); err != nil {
			return backend.EventPage{}, err
		}
		page.Next = e.Seq
	}
	page.HasMore = page.Next < page.Latest
	return page, nil
}
