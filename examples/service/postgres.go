package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
)

// engineSchema is where the engine's tables are. It is nobody's but the engine's, and in no search path:
// the service's tables are in the first schema of that, which is the role's own if there is one.
const engineSchema = "orders_engine"

// retryTimeout is for how long the store repeats what a repetition may cure. The engine repeats it as well,
// so the sum is what a caller waits for, and what readiness is late by, when the server is away.
const retryTimeout = 300 * time.Millisecond

// postgresDatabase is a PostgreSQL database.
type postgresDatabase struct {
	postgresQueries
	pool   *pgxpool.Pool
	engine *postgres.Store
}

func openPostgres(ctx context.Context, dsn string) (database, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	d := &postgresDatabase{postgresQueries: postgresQueries{pool}, pool: pool}
	if d.engine, err = postgres.New(pool, postgres.Options{Schema: engineSchema, RetryTimeout: retryTimeout}); err != nil {
		pool.Close()
		return nil, err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// Replicas that start together make the tables one after the other. The number is any one
		// that nobody else of the database locks.
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(7260914)"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, schema)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *postgresDatabase) store() backend.Store { return d.engine }

func (d *postgresDatabase) transact(ctx context.Context, fn func(transaction) error) error {
	var refused error
	err := pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		refused = fn(postgresTx{postgresQueries{tx}, tx, d.engine})
		return refused
	})
	if refused != nil {
		return refused
	}
	return away(err)
}

func (d *postgresDatabase) close() error {
	err := d.engine.Close()
	d.pool.Close()
	return err
}

// postgresTx is a transaction.
type postgresTx struct {
	postgresQueries
	tx     pgx.Tx
	engine *postgres.Store
}

func (t postgresTx) starter() backend.Starter { return t.engine.WithTx(t.tx) }
func (t postgresTx) forUpdate() string        { return " for update" }

func (t postgresTx) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	tag, err := t.tx.Exec(ctx, statement, args...)
	return tag.RowsAffected(), away(err)
}

// postgresQueries reads by the pool, or by a transaction.
type postgresQueries struct {
	db interface {
		Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error)
	}
}

func (q postgresQueries) query(ctx context.Context, statement string, args []any, each func(scan func(...any) error) error) error {
	rows, err := q.db.Query(ctx, statement, args...)
	if err != nil {
		return away(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return away(rows.Err())
}

// away marks what is wrong with the server or the way to it, as the engine's backend does for its own
// statements: nothing, or everything, took effect, and the caller may try again. What the
// server says of a statement stays as it is.
func away(err error) error {
	if err == nil {
		return nil
	}
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		passing := func(class string) bool { return strings.HasPrefix(answer.Code, class) }
		// Connections, conflicts between transactions, resources, and a server that stops or starts.
		if !passing("08") && !passing("40") && !passing("53") && !passing("57P") {
			return err
		}
	}
	return &backend.InfrastructureError{Op: "order tables", Nature: backend.Unknown, Err: err}
}
