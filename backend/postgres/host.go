package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

// WithTx binds the store to a transaction of the host's on the same database: what is
// published and started through it is there when the host commits, and was never there when
// it rolls back (clauses F2, X8). It reads what the transaction sees, claims nothing, and
// repeats nothing by itself. A refused start leaves the transaction usable, at any isolation
// level. After the commit the run is found by the engine's next poll, or at once when the host
// wakes it.
//
// A start key is locked from the start until the end of the host's transaction: two
// transactions that take the same keys in opposite order deadlock, and one of them fails.
func (s *Store) WithTx(tx pgx.Tx) backend.Starter {
	return bound{view: view{s: s, tx: tx}, tx: tx}
}

// bound is a store in a host's transaction.
type bound struct {
	view
	tx pgx.Tx
}

func (b bound) InsertRun(ctx context.Context, owner backend.Owner, in backend.Initialization) (backend.Inserted, error) {
	if in.Claim != nil {
		return backend.Inserted{}, &backend.ArgumentError{Argument: "claim", Reason: "is not possible in a host's transaction: start the run due"}
	}
	i, err := b.s.newInsert(owner, in)
	if err != nil {
		return backend.Inserted{}, err
	}
	answer, err := i.run(ctx, b.tx, func(fn func(db session) error) error { return b.guarded(ctx, fn) })
	if err != nil {
		return backend.Inserted{}, fail("insert run", err)
	}
	return answer, nil
}

func (b bound) SaveGraph(ctx context.Context, owner backend.Owner, ref graph.Ref, raw value.Value) error {
	if err := backend.CheckSaveGraph(owner, ref, raw); err != nil {
		return err
	}
	return fail("save graph", b.guarded(ctx, func(db session) error { return b.s.saveGraph(ctx, db, owner, ref, raw) }))
}

// guarded runs fn behind a savepoint, so that what fails in it leaves nothing behind.
func (b bound) guarded(ctx context.Context, fn func(db session) error) error {
	inner, err := b.tx.Begin(ctx)
	if err != nil {
		return &failure{err}
	}
	if err := fn(inner); err != nil {
		// The savepoint ends even when ctx has: the transaction is the host's to go on with.
		if back := inner.Rollback(context.WithoutCancel(ctx)); back != nil {
			return errors.Join(err, back)
		}
		return err
	}
	if err := inner.Commit(ctx); err != nil {
		return &failure{err}
	}
	return nil
}
