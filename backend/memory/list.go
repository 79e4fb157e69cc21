package memory

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/belay-run/belay/backend"
)

// list holds the order in which runs are listed: one of all runs, and in each owner one
// of its own, so that no scope walks through another's runs. Beside it are the finished
// runs in the order in which retention looks at them.
type list struct {
	mu       sync.RWMutex
	all      ordered // by started-at
	finished ordered // by finished-at
}

func (l *list) add(r *row) {
	e := entry{at: r.started, row: r}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.insert(e)
	r.owner.runs.insert(e)
}

// finish notes that a run became terminal, once.
func (l *list) finish(r *row, at int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.finished = at
	l.finished.insert(entry{at: at, row: r})
}

func (l *list) remove(r *row) {
	e := entry{at: r.started, row: r}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.remove(e)
	r.owner.runs.remove(e)
	l.finished.remove(entry{at: r.finished, row: r})
}

// listStep is how many runs ListRuns looks at before it lets writers in.
const listStep = 256

// ListRuns lists summaries, newest first (clause R5).
func (s *Store) ListRuns(ctx context.Context, scope backend.Scope, q backend.Query) (backend.Page, error) {
	q, err := backend.CheckQuery(scope, q)
	if err != nil {
		return backend.Page{}, err
	}
	if err := s.enter(ctx, "list: begun"); err != nil {
		return backend.Page{}, err
	}
	page := backend.Page{Next: q.Before}
	order := &s.list.all
	if id, one := scope.Owner(); one {
		o := s.graphs.owner(id)
		if o == nil {
			return page, nil
		}
		order = &o.runs
	}
	at := entry{at: math.MaxInt64, row: &row{}}
	if q.Before != (backend.Cursor{}) {
		at = entry{at: micros(q.Before.StartedAt), row: &row{id: q.Before.Run}}
	}
	for {
		s.list.mu.RLock()
		step := order.before(at, min(q.Limit+1, listStep))
		s.list.mu.RUnlock()
		if len(step) == 0 {
			return page, nil
		}
		for _, e := range step {
			stored := e.row.now.Load()
			if stored == nil || !admits(q, stored) {
				continue
			}
			if len(page.Runs) == q.Limit {
				page.HasMore = true
				return page, nil
			}
			sum := stored.summary(e.row.owner)
			page.Runs = append(page.Runs, sum)
			page.Next = backend.Cursor{StartedAt: sum.StartedAt, Run: sum.Run}
		}
		at = step[len(step)-1]
		if err := ctx.Err(); err != nil {
			return backend.Page{}, err
		}
	}
}

func admits(q backend.Query, stored *snapshot) bool {
	d := stored.document
	return (q.GraphID == "" || q.GraphID == d.Graph.ID) &&
		(q.GraphHash == "" || q.GraphHash == d.Graph.Hash) &&
		(len(q.Statuses) == 0 || slices.Contains(q.Statuses, d.Status))
}
