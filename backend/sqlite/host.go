package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

// WithTx binds the store to a transaction of the host's on the same file, opened with
// the driver modernc.org/sqlite (see HostDSN): what is published and started through it is
// there when the host commits, and was never there when it rolls back (clauses F2, X8).
// It reads what the transaction sees, claims nothing, and repeats nothing by itself. A
// refused start leaves the transaction usable. After the commit the run is found by
// the engine's next poll, or at once when the host wakes it.
//
// SQLite has one writer a file: from its first write until its end, the host's
// transaction delays every other one, so it should be short, and begin immediate.
func (s *Store) WithTx(tx *sql.Tx) backend.Starter {
	return bound{view: view{inTx{hostTx{tx}}, s.opts.Sealer}, s: s, db: hostTx{tx}}
}

type inTx struct{ hostTx }

func (t inTx) read(_ context.Context, fn func(session) error) error { return fn(t.hostTx) }

// same is the host's transaction itself, at whatever isolation it has.
func (t inTx) same(_ context.Context, fn func(session) error) error { return fn(t.hostTx) }

// bound is a store in a host's transaction.
type bound struct {
	view
	s  *Store
	db hostTx
}

func (b bound) InsertRun(ctx context.Context, owner backend.Owner, in backend.Initialization) (backend.Inserted, error) {
	if in.Claim != nil {
		return backend.Inserted{}, &backend.ArgumentError{Argument: "claim", Reason: "is not possible in a host's transaction: start the run due"}
	}
	i, err := b.s.newInsert(owner, in)
	if err != nil {
		return backend.Inserted{}, err
	}
	err = b.guarded(ctx, func() error { return i.run(ctx, b.db, true) })
	return i.answered(fail("insert run", err, false))
}

func (b bound) SaveGraph(ctx context.Context, owner backend.Owner, ref graph.Ref, raw value.Value) error {
	if err := backend.CheckSaveGraph(owner, ref, raw); err != nil {
		return err
	}
	err := b.guarded(ctx, func() error { return saveGraph(ctx, b.db, b.s.clock, owner, ref, raw) })
	return fail("save graph", err, false)
}

// guarded leaves nothing behind of what failed.
func (b bound) guarded(ctx context.Context, fn func() error) error {
	if _, err := b.db.exec(ctx, stSavepoint); err != nil {
		return err
	}
	err := fn()
	// The savepoint ends even when ctx has: the transaction is the host's to go on with.
	ctx = context.WithoutCancel(ctx)
	if err != nil {
		if _, back := b.db.exec(ctx, stSavepointRollback); back != nil {
			return errors.Join(err, back)
		}
	}
	_, end := b.db.exec(ctx, stSavepointRelease)
	return errors.Join(err, end)
}
