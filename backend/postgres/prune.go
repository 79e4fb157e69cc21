package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
)

// pruneRuns bounds the runs of one transaction of a prune, so that nobody waits for it.
const pruneRuns = 50

// Prune implements backend.Retention (feature X7). It is many short transactions; ended in
// the middle, it has deleted some runs whole. One prune of a schema runs at a time: another
// one meanwhile answers ErrBusy. Runs that somebody else has locked are left.
func (s *Store) Prune(ctx context.Context, p backend.PrunePolicy) (backend.Pruned, error) {
	p, err := backend.CheckPrune(p)
	if err != nil {
		return backend.Pruned{}, err
	}
	k := &prune{s: s, policy: p, before: p.Before}
	for _, status := range p.Statuses {
		k.statuses = append(k.statuses, string(status))
	}
	if p.DryRun {
		return k.count(ctx)
	}
	return k.delete(ctx)
}

type prune struct {
	s        *Store
	policy   backend.PrunePolicy
	before   time.Time
	statuses []string
}

func (k *prune) delete(ctx context.Context) (done backend.Pruned, err error) {
	for done.Runs < k.policy.Limit {
		limit := min(k.policy.Limit-done.Runs, pruneRuns)
		var runs, events int64
		err := k.s.try(ctx, "prune", unsent, func(session) error {
			return k.s.within(ctx, func(tx pgx.Tx) error {
				if err := k.lease(ctx, tx); err != nil {
					return err
				}
				return k.s.run(ctx, tx, stPruneRuns, func(r pgx.Rows) error { return scan(r, &runs, &events) }, k.before, k.statuses, int64(limit))
			})
		})
		if err != nil {
			return done, err
		}
		done.Runs += int(runs)
		done.Events += int(events)
		if int(runs) < limit {
			break
		}
	}
	if done.Runs == k.policy.Limit {
		if done.More, err = k.more(ctx, 0); err != nil {
			return done, err
		}
	}
	if k.policy.Graphs {
		if done.Graphs, err = k.graphs(ctx); err != nil {
			return done, err
		}
	}
	return done, k.turns(ctx)
}

// turns forgets when owners were served that have no runs left.
func (k *prune) turns(ctx context.Context) error {
	return k.s.try(ctx, "prune turns", always, func(db session) error {
		return k.s.run(ctx, db, stPruneTurns, nil, k.s.lockKey("turns"))
	})
}

// lease keeps other prunes of the schema away until the transaction ends.
func (k *prune) lease(ctx context.Context, tx pgx.Tx) error {
	leased := false
	err := k.s.run(ctx, tx, stPruneLease, func(r pgx.Rows) error { return scan(r, &leased) }, k.s.lockKey("prune"))
	if err == nil && !leased {
		err = backend.ErrBusy
	}
	return err
}

func (k *prune) count(ctx context.Context) (done backend.Pruned, err error) {
	var runs, events int64
	err = k.s.try(ctx, "prune", always, func(db session) error {
		return k.s.run(ctx, db, stPruneCount, func(r pgx.Rows) error { return scan(r, &runs, &events) }, k.before, k.statuses, int64(k.policy.Limit))
	})
	if err != nil {
		return backend.Pruned{}, err
	}
	done = backend.Pruned{Runs: int(runs), Events: int(events)}
	if done.Runs == k.policy.Limit {
		if done.More, err = k.more(ctx, k.policy.Limit); err != nil {
			return done, err
		}
	}
	if k.policy.Graphs {
		err = k.s.try(ctx, "prune graphs", always, func(db session) error {
			return k.unreferenced(ctx, db, &k.before, false, &done.Graphs)
		})
	}
	return done, err
}

func (k *prune) more(ctx context.Context, than int) (more bool, err error) {
	err = k.s.try(ctx, "prune", always, func(db session) error {
		return k.s.run(ctx, db, stPruneMore, func(r pgx.Rows) error { return scan(r, &more) }, k.before, k.statuses, int64(than))
	})
	return more, err
}

// graphs deletes the versions that nothing references. Starts wait meanwhile; that a start
// waits for long is prevented by giving up when the lock is not to be had.
func (k *prune) graphs(ctx context.Context) (n int, err error) {
	err = k.s.try(ctx, "prune graphs", unsent, func(session) error {
		return k.s.within(ctx, func(tx pgx.Tx) error {
			if err := k.lease(ctx, tx); err != nil {
				return err
			}
			// Most often there is nothing to delete, and nobody has to wait to know.
			if err := k.unreferenced(ctx, tx, nil, false, &n); err != nil || n == 0 {
				return err
			}
			if err := script(ctx, tx, "set local lock_timeout = 200"); err != nil {
				return &failure{err}
			}
			if err := k.s.run(ctx, tx, stPruneGraphsLock, nil); err != nil {
				return err
			}
			return k.unreferenced(ctx, tx, nil, true, &n)
		})
	})
	if infra, ok := errors.AsType[*backend.InfrastructureError](err); ok && code(infra) == codeLockNotAvailable {
		return 0, nil // transactions that may be starting a run hold the graphs: another time
	}
	return n, err
}

// unreferenced counts the versions that may go, and deletes them when asked to. dry is set
// for a dry run: finished before it are the runs that count as deleted.
func (k *prune) unreferenced(ctx context.Context, db session, dry *time.Time, remove bool, n *int) error {
	var count int64
	err := k.s.run(ctx, db, stPruneGraphs, func(r pgx.Rows) error { return scan(r, &count) },
		k.before, dry, remove, k.statuses, int64(k.policy.Limit))
	*n = int(count)
	return err
}
