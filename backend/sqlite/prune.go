package sqlite

import (
	"context"
	"time"

	"github.com/belay-run/belay/backend"
)

// A prune is many short transactions, so that nobody waits for it: these bound one.
const (
	pruneRuns = 32
	pruneRows = 1000
)

// Prune implements backend.Retention (feature X7), and gives the pages it frees back to
// the file system. A run goes in steps, its events first and the oldest of them first;
// ended in the middle, it leaves finished runs with a shorter history.
func (s *Store) Prune(ctx context.Context, p backend.PrunePolicy) (backend.Pruned, error) {
	p, err := backend.CheckPrune(p)
	if err != nil {
		return backend.Pruned{}, err
	}
	k := &prune{s: s, policy: p, gone: make(map[graphName]int64)}
	err = k.runs(ctx)
	if err == nil && p.Graphs {
		err = k.graphs(ctx)
	}
	if err == nil && !p.DryRun {
		err = k.turns(ctx)
	}
	if err == nil && !p.DryRun {
		err = k.pages(ctx)
	}
	return k.done, err
}

type prune struct {
	s      *Store
	policy backend.PrunePolicy
	done   backend.Pruned
	gone   map[graphName]int64 // runs of a version that a dry run has counted
}

type finished struct {
	number   int64
	id       string
	finished int64
	graph    graphName
}

type graphName struct{ owner, id, hash string }

// find reads up to n finished runs behind a position.
func (k *prune) find(ctx context.Context, after finished, n int) (found []finished, err error) {
	err = k.s.readers.use(ctx, func(c *conn) error {
		return c.query(ctx, stPruneRuns, func(r row) error {
			found = append(found, finished{r.int(0), r.text(1), r.int(2), graphName{r.text(3), r.text(4), r.text(5)}})
			return nil
		}, k.policy.Before.UnixMicro(), statusList(k.policy.Statuses), int64(n), after.finished, after.id)
	})
	return found, fail("prune", err, false)
}

func (k *prune) runs(ctx context.Context) error {
	after := finished{finished: -1 << 63}
	for left := k.policy.Limit; ; {
		// One more is looked at to know whether there are more.
		found, err := k.find(ctx, after, min(left, pruneRuns)+1)
		if err != nil {
			return err
		}
		if left == 0 {
			k.done.More = len(found) > 0
			return nil
		}
		more := len(found) > min(left, pruneRuns)
		if more {
			found = found[:len(found)-1]
		}
		if len(found) == 0 {
			return nil
		}
		if err := k.delete(ctx, found); err != nil {
			return err
		}
		left -= len(found)
		after = found[len(found)-1]
		if !more {
			return nil
		}
	}
}

// delete deletes a few runs, in as many transactions as their events need.
func (k *prune) delete(ctx context.Context, runs []finished) error {
	if k.policy.DryRun {
		return k.count(ctx, runs)
	}
	for len(runs) > 0 {
		var events, rows, deleted, behind int
		err := k.s.writer.do(ctx, &operation{name: "prune", run: func(c *conn, _ bool) error {
			events, rows, deleted, behind = 0, 0, 0, 0
			for _, r := range runs {
				there, err := k.stillThere(c, r)
				if err != nil {
					return err
				}
				if there {
					gone, of, err := k.deleteEvents(c, r, pruneRows-rows)
					if err != nil {
						return err
					}
					events, rows = events+gone, rows+of
					if rows >= pruneRows {
						return nil
					}
					if err := k.deleteRun(c, r); err != nil {
						return err
					}
					deleted++
				}
				behind++
			}
			return nil
		}})
		if err != nil {
			return err
		}
		k.done.Events += events
		k.done.Runs += deleted
		runs = runs[behind:]
	}
	return nil
}

// stillThere: another process may have pruned the run meanwhile.
func (k *prune) stillThere(c *conn, r finished) (there bool, err error) {
	err = c.query(context.Background(), stPruneCheck, func(row) error { there = true; return nil },
		r.number, r.id, k.policy.Before.UnixMicro())
	return there, err
}

// deleteEvents deletes a run's oldest events, in as many rows at the most.
func (k *prune) deleteEvents(c *conn, r finished, most int) (events, rows int, err error) {
	err = c.query(context.Background(), stPruneEvents, func(stored row) error {
		events += eventsIn(r.id, stored)
		rows++
		return nil
	}, r.number, int64(most), int64(backend.EventRowHead))
	return events, rows, err
}

// eventsIn is how many events a row holds, of which there are the sequence and the head of its
// body. One that is damaged counts once.
func eventsIn(id string, stored row) int {
	first, err := backend.FirstEvent(id, stored.int(0), stored.blob(1))
	if err != nil {
		return 1
	}
	return int(stored.int(0) - first + 1)
}

func (k *prune) deleteRun(c *conn, r finished) error {
	for _, st := range []*statement{stPruneKeys, stPruneDriver, stPruneDocument, stPruneRun} {
		if _, err := c.exec(context.Background(), st, r.number); err != nil {
			return err
		}
		point("prune.row")
	}
	return nil
}

func (k *prune) count(ctx context.Context, runs []finished) error {
	err := k.s.readers.use(ctx, func(c *conn) error {
		for _, r := range runs {
			err := c.query(ctx, stPruneCountEvents, func(stored row) error {
				k.done.Events += eventsIn(r.id, stored)
				return nil
			}, r.number, int64(backend.EventRowHead))
			if err != nil {
				return err
			}
			k.done.Runs++
			k.gone[r.graph]++
		}
		return nil
	})
	return fail("prune", err, false)
}

// graphs deletes the versions that nothing references.
func (k *prune) graphs(ctx context.Context) error {
	var after, seen int64
	for {
		count := 0
		step := func(c *conn) error {
			count, seen = 0, after
			unreferenced, err := k.unreferenced(c, after, func(number int64) { seen = number })
			if err != nil {
				return err
			}
			count = len(unreferenced)
			if k.policy.DryRun {
				return nil
			}
			for _, number := range unreferenced {
				if _, err := c.exec(context.Background(), stPruneGraph, number); err != nil {
					return err
				}
			}
			return nil
		}
		var err error
		if k.policy.DryRun {
			err = fail("prune graphs", k.s.readers.use(ctx, step), false)
		} else {
			err = k.s.writer.do(ctx, &operation{name: "prune graphs", run: func(c *conn, _ bool) error { return step(c) }})
		}
		if err != nil {
			return err
		}
		k.done.Graphs += count
		if seen == after {
			return nil
		}
		after = seen
	}
}

// unreferenced looks at the next few versions that may go, and tells the number of each.
func (k *prune) unreferenced(c *conn, after int64, look func(number int64)) (numbers []int64, err error) {
	type version struct {
		number int64
		name   graphName
	}
	var versions []version
	err = c.query(context.Background(), stPruneGraphs, func(r row) error {
		versions = append(versions, version{r.int(0), graphName{r.text(1), r.text(2), r.text(3)}})
		return nil
	}, k.policy.Before.UnixMicro(), after, int64(pruneRuns))
	if err != nil {
		return nil, err
	}
	for _, v := range versions {
		look(v.number)
		// What a dry run has counted as deleted does not count as a reference.
		gone, left := k.gone[v.name], int64(0)
		err := c.query(context.Background(), stReferences, func(r row) error { left = r.int(0) - gone; return nil },
			v.name.owner, v.name.id, v.name.hash, gone+1)
		if err != nil {
			return nil, err
		}
		if left == 0 {
			numbers = append(numbers, v.number)
		}
	}
	return numbers, nil
}

// turns forgets when owners were served that have no runs left.
func (k *prune) turns(ctx context.Context) error {
	return k.s.writer.do(ctx, &operation{name: "prune turns", run: func(c *conn, _ bool) error {
		_, err := c.exec(context.Background(), stPruneTurns)
		return err
	}})
}

// pages gives freed pages back, a few in each transaction.
func (k *prune) pages(ctx context.Context) error {
	for {
		var free int64
		err := k.s.writer.do(ctx, &operation{name: "release pages", run: func(c *conn, _ bool) error {
			if _, err := c.exec(context.Background(), stPrunePages); err != nil {
				return err
			}
			return c.read(context.Background(), "pragma freelist_count", func(r row) error {
				free = r.int(0)
				return nil
			})
		}})
		if err != nil || free == 0 {
			return err
		}
	}
}

// Driver is the process that last said it drives a run: host and process id, and when.
// It is a note for tools, no part of the contract, and says nothing about claims.
type Driver struct {
	Host    string
	PID     int
	NotedAt time.Time
}

// NoteDriver keeps who drives a run, in place of who did.
func (s *Store) NoteDriver(ctx context.Context, id string, d Driver) error {
	if err := backend.CheckRun(backend.System(), id); err != nil {
		return err
	}
	return s.writer.do(ctx, &operation{name: "note driver", run: func(c *conn, _ bool) error {
		n, err := c.exec(context.Background(), stDriverNote, id, d.Host, int64(d.PID), s.clock.or(d.NotedAt).UnixMicro())
		if err == nil && n == 0 {
			err = backend.ErrNotFound
		}
		return err
	}})
}

// DriverOf is who last drove a run; ErrNotFound when nobody said so.
func (s *Store) DriverOf(ctx context.Context, id string) (Driver, error) {
	if err := backend.CheckRun(backend.System(), id); err != nil {
		return Driver{}, err
	}
	var d Driver
	err := s.view().one(ctx, "driver of run", stDriverOf, func(r row) error {
		d = Driver{Host: r.text(0), PID: int(r.int(1)), NotedAt: r.instant(2)}
		return nil
	}, id)
	return d, err
}
