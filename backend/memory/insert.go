package memory

import (
	"context"
	"sync"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// keys holds an owner's start keys. An insert with a key holds the lock from its look at
// the key until it has taken it.
type keys struct {
	mu   sync.Mutex
	held map[keyName]*startKey
}

type keyName struct{ graph, key string }

// startKey is a start key and the run it points at (clause R2).
type startKey struct {
	name  keyName
	run   *row
	until time.Time
}

// holder is the run that holds a key at an instant, or nil. The keys are locked.
func (k *keys) holder(name keyName, now time.Time) *row {
	key := k.held[name]
	if key == nil {
		return nil
	}
	stored := key.run.now.Load()
	if stored == nil || stored.document.Status.Terminal() && !now.Before(key.until) {
		return nil
	}
	return key.run
}

// take points a key at its new holder. The keys are locked.
func (k *keys) take(key *startKey) {
	if k.held == nil {
		k.held = make(map[keyName]*startKey)
	}
	k.held[key.name] = key
}

// forget removes a key that points at a run that is being deleted.
func (k *keys) forget(key *startKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[key.name] == key {
		delete(k.held, key.name)
	}
}

// InsertRun stores an initialized run with its events (clauses R1 to R3).
func (s *Store) InsertRun(ctx context.Context, id backend.Owner, in backend.Initialization) (backend.Inserted, error) {
	in, err := backend.CheckInitialization(id, in, s.Features(), s.limits)
	if err != nil {
		return backend.Inserted{}, err
	}
	if err := run.CheckWritable(in.Document, s.format); err != nil {
		return backend.Inserted{}, err
	}
	if err := s.enter(ctx, "insert: begun"); err != nil {
		return backend.Inserted{}, err
	}
	g := s.graphs.hold(id, in.Document.Graph)
	if g == nil {
		return backend.Inserted{}, backend.ErrNotFound
	}
	s.yield("insert: graph found")
	inserted, err := s.insert(g, in)
	if err != nil || inserted.Existing || inserted.Replayed {
		s.graphs.drop(g)
	} else {
		s.watchers.announce()
	}
	s.yield("insert: done")
	return inserted, err
}

// insert stores the run unless its key or its id is taken.
func (s *Store) insert(g *published, in backend.Initialization) (backend.Inserted, error) {
	now := s.clock.or(in.Now)
	r, stored := s.newRow(g, in, now)
	inserted := backend.Inserted{Run: r.id}
	if in.Claim != nil {
		l := lease(r, stored.committed, &stored.claim, in.Claim.TTL, claim.Ready)
		inserted.Lease = &l
	}
	if in.Key != "" {
		o := r.owner
		o.keys.mu.Lock()
		defer o.keys.mu.Unlock()
		r.key = &startKey{name: keyName{graph: in.Document.Graph.ID, key: in.Key}, run: r, until: now.Add(in.Window)}
		// An insert that was stored already answers as it did then, whoever holds its
		// key by now.
		if s.row(r.id).isReplay(r) {
			return backend.Inserted{Run: r.id, Replayed: true}, nil
		}
		if first := o.keys.holder(r.key.name, now); first != nil {
			return backend.Inserted{Run: first.id, Existing: true}, nil
		}
	}

	sh := s.shardOf(r.id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if other := sh.rows[r.id]; other.isReplay(r) {
		return backend.Inserted{Run: r.id, Replayed: true}, nil
	} else if other != nil {
		return backend.Inserted{}, backend.ErrConflict
	}
	sh.rows[r.id] = r
	if r.key != nil {
		r.owner.keys.take(r.key)
	}
	s.list.add(r)
	// Last, since from here on the run may be claimed.
	s.due.mu.Lock()
	s.due.set(r, &g.due, &stored.claim)
	s.due.mu.Unlock()
	return inserted, nil
}

// newRow is the row of a run that is being inserted, and what it holds.
func (s *Store) newRow(g *published, in backend.Initialization, now time.Time) (*row, *snapshot) {
	r := &row{id: in.Document.ID, owner: g.due.owner, started: micros(in.Document.StartedAt)}
	state := claim.State{}
	if in.Claim != nil {
		state, _ = state.Acquire(now, s.tokens.next(), 1)
	} else {
		state = in.Schedule.Apply(state, now)
	}
	// Nothing is stored that the events could conflict with.
	first, _ := make(history, 0, 2).grown(in.CheckpointID, in.Events)
	stored := &snapshot{
		committed: &committed{document: in.Document, kind: in.Type, graph: g, history: first},
		claim:     state,
	}
	r.now.Store(stored)
	return r, stored
}

// isReplay reports whether a stored run came from the very insert that made other: the
// same owner, id and checkpoint id (clause T5). There is none for a nil row.
func (r *row) isReplay(other *row) bool {
	return r != nil && r.owner == other.owner && r.firstCommit() == other.firstCommit()
}

// firstCommit is the checkpoint id of the run's insert; empty once it was pruned.
func (r *row) firstCommit() checkpoint.ID {
	if stored := r.now.Load(); stored != nil {
		return stored.history[0].commit
	}
	return ""
}
