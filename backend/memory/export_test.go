package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
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

// Check reports a violated invariant of the store's insides: each run's state has a legal
// shape and stands in the indexes where it says. Nobody else may use the store meanwhile.
func (s *Store) Check() error {
	if err := s.due.check(); err != nil {
		return err
	}
	var runs, finished int
	held := make(map[*published]int)
	for i := range s.shards {
		for id, r := range s.shards[i].rows {
			stored := r.now.Load()
			if id != r.id || stored == nil {
				return fmt.Errorf("run %s is stored as %s, or pruned", r.id, id)
			}
			runs++
			held[stored.graph]++
			st, status := stored.claim, stored.document.Status
			if err := st.Valid(status == run.Running); err != nil {
				return fmt.Errorf("run %s: %w", id, err)
			}
			if status.Terminal() {
				finished++
			}
			want := place{lane: &stored.graph.due, class: byWake, at: micros(st.Wake)}
			if st.Token != "" {
				want.class, want.at = byClaim, micros(st.ClaimedAt)
			}
			if st == (claim.State{}) || st.Poison != (claim.Poison{}) {
				if r.due.lane != nil {
					return fmt.Errorf("run %s is in the index, but not to be claimed", id)
				}
				continue
			}
			if r.due != want {
				return fmt.Errorf("run %s stands at %+v, want %+v", id, r.due, want)
			}
		}
	}
	if s.list.all.count != runs || s.list.finished.count != finished {
		return fmt.Errorf("%d runs and %d finished ones are listed, there are %d and %d", s.list.all.count, s.list.finished.count, runs, finished)
	}
	for _, o := range s.graphs.owners {
		for _, versions := range o.graphs {
			for _, v := range versions {
				if v.runs != held[v] {
					return fmt.Errorf("version %s of %s counts %d runs, it has %d", v.ref.Hash, v.ref.ID, v.runs, held[v])
				}
			}
		}
	}
	return nil
}
