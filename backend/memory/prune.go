package memory

import (
	"context"
	"slices"

	"github.com/belay-run/belay/backend"
)

// Prune deletes finished runs, those that finished first, then graph versions that no
// run refers to (feature X7). A run that somebody has locked is left for the next call.
func (s *Store) Prune(ctx context.Context, p backend.PrunePolicy) (backend.Pruned, error) {
	p, err := backend.CheckPrune(p)
	if err != nil {
		return backend.Pruned{}, err
	}
	if err := s.enter(ctx, "prune: begun"); err != nil {
		return backend.Pruned{}, err
	}
	var pruned backend.Pruned
	gone := make(map[*published]int)
	rows, more := s.prunable(p)
	pruned.More = more
	for _, r := range rows {
		s.yield("prune: run chosen")
		if stored := s.pruneRun(r, p.DryRun); stored != nil {
			pruned.Runs++
			pruned.Events += stored.history.count()
			gone[stored.graph]++
		}
	}
	s.yield("prune: runs done")
	if p.Graphs {
		pruned.Graphs = s.pruneGraphs(p, gone)
	}
	return pruned, nil
}

// prunable lists up to limit runs that may go, and whether there are more.
func (s *Store) prunable(p backend.PrunePolicy) (rows []*row, more bool) {
	s.list.mu.RLock()
	defer s.list.mu.RUnlock()
	before := micros(p.Before)
	for _, chunk := range s.list.finished.chunks {
		for _, e := range chunk {
			if e.at >= before {
				return rows, false
			}
			if len(p.Statuses) > 0 {
				if stored := e.row.now.Load(); stored == nil || !slices.Contains(p.Statuses, stored.document.Status) {
					continue
				}
			}
			if len(rows) == p.Limit {
				return rows, true
			}
			rows = append(rows, e.row)
		}
	}
	return rows, false
}

// pruneRun deletes a run, or with dry only looks at it, and is what it held; nil when
// somebody has it locked, or deleted it.
func (s *Store) pruneRun(r *row, dry bool) *snapshot {
	if !r.lock.try() {
		return nil
	}
	defer r.lock.release()
	stored := r.now.Load()
	if dry || stored == nil {
		return stored
	}
	// At once, so that an insert of the same id sees both or neither.
	sh := s.shardOf(r.id)
	sh.mu.Lock()
	r.now.Store(nil)
	delete(sh.rows, r.id)
	sh.mu.Unlock()
	s.list.remove(r)
	if r.key != nil {
		r.owner.keys.forget(r.key)
	}
	s.graphs.drop(stored.graph)
	return stored
}

// pruneGraphs deletes the versions that no run refers to, except the newest of each
// graph. In a dry run, gone are the references that would be gone.
func (s *Store) pruneGraphs(p backend.PrunePolicy, gone map[*published]int) (count int) {
	s.graphs.mu.Lock()
	defer s.graphs.mu.Unlock()
	for _, o := range s.graphs.owners {
		for id, versions := range o.graphs {
			kept := versions[:1:1]
			for _, v := range versions[1:] {
				runs := v.runs
				if p.DryRun {
					runs -= gone[v]
				}
				if runs > 0 || !v.at.Before(p.Before) {
					kept = append(kept, v)
					continue
				}
				count++
			}
			if !p.DryRun {
				o.graphs[id] = kept
			}
		}
	}
	return count
}
