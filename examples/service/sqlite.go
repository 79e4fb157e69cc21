package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite"
)

// sqliteDatabase is one file, which several processes may share.
type sqliteDatabase struct {
	sqliteQueries
	engine *sqlite.Store
	read   *sql.DB
	// A file has one writer. One connection for writing lets the transactions of this process queue
	// here, rather than try again and again for the file's lock.
	write *sql.DB
}

func openSQLite(ctx context.Context, dsn string) (database, error) {
	store, err := sqlite.Open(ctx, dsn, sqlite.Options{CreateDirectory: true})
	if err != nil {
		return nil, err
	}
	read, readErr := sql.Open("sqlite", store.HostDSN()) // the driver that the backend brings
	write, writeErr := sql.Open("sqlite", store.HostDSN())
	if err := errors.Join(readErr, writeErr); err != nil { // it opens nothing yet, and fails only for a driver that is missing
		return nil, errors.Join(err, store.Close())
	}
	write.SetMaxOpenConns(1)
	d := &sqliteDatabase{sqliteQueries: sqliteQueries{read}, engine: store, read: read, write: write}
	if _, err := write.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *sqliteDatabase) store() backend.Store { return d.engine }

func (d *sqliteDatabase) transact(ctx context.Context, fn func(transaction) error) error {
	tx, err := d.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := fn(sqliteTx{sqliteQueries{tx}, tx, d.engine}); err != nil {
		return err
	}
	return tx.Commit()
}

func (d *sqliteDatabase) close() error {
	return errors.Join(d.read.Close(), d.write.Close(), d.engine.Close())
}

// sqliteTx is a transaction. It holds the file's write lock since it began.
type sqliteTx struct {
	sqliteQueries
	tx     *sql.Tx
	engine *sqlite.Store
}

func (t sqliteTx) starter() backend.Starter { return t.engine.WithTx(t.tx) }
func (t sqliteTx) forUpdate() string        { return "" }

func (t sqliteTx) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	result, err := t.tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// sqliteQueries reads by a pool, or by a transaction.
type sqliteQueries struct {
	db interface {
		QueryContext(ctx context.Context, statement string, args ...any) (*sql.Rows, error)
	}
}

func (q sqliteQueries) query(ctx context.Context, statement string, args []any, each func(scan func(...any) error) error) error {
	rows, err := q.db.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
