package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// appendEvents is stored with proposed appended; both ascend. Stored is not modified, but
// may share its memory with the answer, beyond its length.
func appendEvents(stored, proposed []run.Event) ([]run.Event, error) {
	if len(proposed) == 0 {
		return stored, nil
	}
	if len(stored) == 0 || stored[len(stored)-1].Seq < proposed[0].Seq {
		return append(stored, proposed...), nil
	}
	events := slices.Clone(stored)
	for _, e := range proposed {
		i, found := findEvent(events, e.Seq)
		if !found {
			events = slices.Insert(events, i, e)
			continue
		}
		same, err := backend.SameEvent(events[i], e)
		if err != nil {
			return nil, err
		}
		if !same {
			return nil, backend.EventConflict(e.Seq)
		}
	}
	return events, nil
}

// findEvent is where an event with the sequence stands, or would.
func findEvent(events []run.Event, seq int64) (int, bool) {
	return slices.BinarySearchFunc(events, seq, func(e run.Event, seq int64) int { return cmp.Compare(e.Seq, seq) })
}

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
	i, found := findEvent(stored.events, seq)
	if !found {
		return run.Event{}, backend.ErrNotFound
	}
	return stored.readEvent(i)
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
	if len(stored.events) == 0 {
		return nil, nil
	}
	e, err := stored.readEvent(len(stored.events) - 1)
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
	page := backend.EventPage{Next: q.After}
	events := stored.events
	if len(events) == 0 {
		return page, nil
	}
	page.Oldest, page.Latest = events[0].Seq, events[len(events)-1].Seq
	from, found := findEvent(events, q.After)
	if found {
		from++
	}
	page.HasMore = len(events)-from > q.Limit
	for i := from; i < len(events) && i < from+q.Limit; i++ {
		e, err := stored.readEvent(i)
		if err != nil {
			return backend.EventPage{}, err
		}
		page.Events = append(page.Events, e)
		page.Next = e.Seq
	}
	return page, nil
}

// readEvent is the event at i, or why it cannot be read.
func (c *committed) readEvent(i int) (run.Event, error) {
	e := c.events[i]
	if err := c.damage.events[e.Seq]; err != nil {
		return run.Event{}, &backend.CorruptError{Run: e.Run, What: fmt.Sprintf("event %d", e.Seq), Err: err}
	}
	return e, nil
}
