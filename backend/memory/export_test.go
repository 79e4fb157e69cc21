package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// WriteDocument replaces the stored bytes of a document, past every check.
func (s *Store) WriteDocument(_ context.Context, id string, raw []byte) error {
	return s.rewrite(id, func(c *committed) {
		d, err := run.Decode(raw)
		if err != nil {
			c.damage.document = err
			return
		}
		c.document, c.damage.document = d, nil
	})
}

// WriteEvent replaces the stored bytes of an event, past every check.
func (s *Store) WriteEvent(_ context.Context, id string, seq int64, raw []byte) error {
	return s.rewrite(id, func(c *committed) {
		c.damage.events = maps.Clone(c.damage.events)
		if c.damage.events == nil {
			c.damage.events = make(map[int64]error)
		}
		e, err := run.DecodeEvent(raw)
		if err != nil {
			c.damage.events[seq] = err
			return
		}
		delete(c.damage.events, seq)
		c.history = slices.Clone(c.history)
		for p := range c.history {
			if i, found := findEvent(c.history[p].events, seq); found {
				c.history[p].events = slices.Clone(c.history[p].events)
				c.history[p].events[i] = e
			}
		}
	})
}

func (s *Store) rewrite(id string, edit func(*committed)) error {
	r := s.row(id)
	if r == nil {
		return backend.ErrNotFound
	}
	if err := r.lock.acquire(context.Background()); err != nil {
		return err
	}
	defer r.lock.release()
	was := r.now.Load()
	next := *was.committed
	edit(&next)
	r.now.Store(&snapshot{committed: &next, claim: was.claim})
	return nil
}

// WriteGraph replaces the stored bytes of a graph version.
func (s *Store) WriteGraph(_ context.Context, owner backend.Owner, ref graph.Ref, raw []byte) error {
	s.graphs.mu.Lock()
	defer s.graphs.mu.Unlock()
	v := s.graphs.version(owner, ref)
	if v == nil {
		return backend.ErrNotFound
	}
	v.raw = raw
	return nil
}

// LockRun locks a run as somebody else's operation does.
func (s *Store) LockRun(ctx context.Context, id string) (unlock func(), err error) {
	r := s.row(id)
	if r == nil {
		return nil, backend.ErrNotFound
	}
	if err := r.lock.acquire(ctx); err != nil {
		return nil, err
	}
	return r.lock.release, nil
}
