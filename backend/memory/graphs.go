package memory

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

// graphs holds the owners, and their published graphs.
type graphs struct {
	mu     sync.RWMutex
	owners map[backend.Owner]*owner
}

// owner is whoever published a graph.
type owner struct {
	id     backend.Owner
	graphs map[string][]*published // by graph id; newest first

	keys keys

	// Guarded by the list.
	runs ordered

	// Guarded by the due index: how many runs and claims the owner has there, and when
	// it last had its turn.
	queued, claims int
	turn           uint64
}

// published is a stored graph version.
type published struct {
	ref graph.Ref
	raw value.Value
	at  time.Time
	// runs counts those that refer to it.
	runs int
	due  lane
}

// newestFirst orders by (published-at, hash) descending.
func newestFirst(a, b *published) int {
	if c := b.at.Compare(a.at); c != 0 {
		return c
	}
	return strings.Compare(b.ref.Hash, a.ref.Hash)
}

// owner is who published under this id, or nil.
func (g *graphs) owner(id backend.Owner) *owner {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.owners[id]
}

// version is a stored version, or nil. The graphs are locked.
func (g *graphs) version(id backend.Owner, ref graph.Ref) *published {
	o := g.owners[id]
	if o == nil {
		return nil
	}
	for _, v := range o.graphs[ref.ID] {
		if v.ref.Hash == ref.Hash {
			return v
		}
	}
	return nil
}

// hold finds a version and counts one more run that refers to it, so that it stays.
func (g *graphs) hold(id backend.Owner, ref graph.Ref) *published {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.version(id, ref)
	if v != nil {
		v.runs++
	}
	return v
}

// drop takes back a hold.
func (g *graphs) drop(v *published) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v.runs--
}

// SaveGraph stores canonical bytes (clause G1).
func (s *Store) SaveGraph(ctx context.Context, id backend.Owner, ref graph.Ref, raw value.Value) error {
	if err := backend.CheckSaveGraph(id, ref, raw); err != nil {
		return err
	}
	if err := s.enter(ctx, "save graph: begun"); err != nil {
		return err
	}
	g := &s.graphs
	g.mu.Lock()
	defer g.mu.Unlock()
	if v := g.version(id, ref); v != nil {
		if !bytes.Equal(v.raw, raw) {
			return backend.ErrGraphConflict
		}
		return nil
	}
	o := g.owners[id]
	if o == nil {
		o = &owner{id: id, graphs: make(map[string][]*published)}
		g.owners[id] = o
	}
	v := &published{ref: ref, raw: bytes.Clone(raw), at: s.clock.now(), due: lane{owner: o, ref: ref}}
	versions := o.graphs[ref.ID]
	i, _ := slices.BinarySearchFunc(versions, v, newestFirst)
	o.graphs[ref.ID] = slices.Insert(versions, i, v)
	return nil
}

// FetchGraph reads and verifies a version (clause G2).
func (s *Store) FetchGraph(ctx context.Context, id backend.Owner, ref graph.Ref) (value.Value, error) {
	if err := backend.CheckGraph(id, ref); err != nil {
		return nil, err
	}
	if err := s.enter(ctx, "fetch graph: begun"); err != nil {
		return nil, err
	}
	s.graphs.mu.RLock()
	v := s.graphs.version(id, ref)
	var raw value.Value
	if v != nil {
		raw = bytes.Clone(v.raw)
	}
	s.graphs.mu.RUnlock()
	if v == nil {
		return nil, backend.ErrNotFound
	}
	if err := backend.VerifyGraph(ref, raw); err != nil {
		return nil, err
	}
	return raw, nil
}

// LatestGraph is the newest version (clause G3).
func (s *Store) LatestGraph(ctx context.Context, id backend.Owner, graphID string) (backend.GraphVersion, error) {
	return backend.LatestVersion(s.GraphVersions(ctx, id, graphID, backend.GraphQuery{Limit: 1}))
}

// GraphVersions lists versions, newest first (clause G3).
func (s *Store) GraphVersions(ctx context.Context, id backend.Owner, graphID string, q backend.GraphQuery) (backend.GraphPage, error) {
	q, err := backend.CheckGraphQuery(id, graphID, q)
	if err != nil {
		return backend.GraphPage{}, err
	}
	if err := s.enter(ctx, "graph versions: begun"); err != nil {
		return backend.GraphPage{}, err
	}
	s.graphs.mu.RLock()
	defer s.graphs.mu.RUnlock()
	o := s.graphs.owners[id]
	if o == nil {
		return backend.VersionPage(q, nil), nil
	}
	versions := o.graphs[graphID]
	if q.Before != (backend.GraphCursor{}) {
		at := &published{at: q.Before.PublishedAt, ref: graph.Ref{Hash: q.Before.Hash}}
		i, found := slices.BinarySearchFunc(versions, at, newestFirst)
		if found {
			i++
		}
		versions = versions[i:]
	}
	var found []backend.GraphVersion
	for _, v := range versions[:min(q.Limit+1, len(versions))] {
		found = append(found, backend.GraphVersion{Ref: v.ref, PublishedAt: v.at})
	}
	return backend.VersionPage(q, found), nil
}
