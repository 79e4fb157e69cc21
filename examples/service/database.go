package main

import (
	"context"
	"errors"
	"strings"

	"github.com/belay-run/belay/backend"
)

// database is where the service's tables and the engine's are: one database, so that one
// transaction can hold both.
type database interface {
	querier
	// transact runs fn in a transaction: what it did is stored as a whole, or when it fails not at all.
	transact(ctx context.Context, fn func(transaction) error) error
	// store is the engine's backend.
	store() backend.Store
	close() error
}

// querier reads.
type querier interface {
	// query calls each for every row.
	query(ctx context.Context, statement string, args []any, each func(scan func(...any) error) error) error
}

// transaction is one of the service's own.
type transaction interface {
	querier
	exec(ctx context.Context, statement string, args ...any) (changed int64, err error)
	// starter starts runs in this transaction.
	starter() backend.Starter
	// forUpdate is what a select that locks its rows ends with.
	forUpdate() string
}

// openDatabase opens the database that a DSN names, and makes its tables when they are missing.
func openDatabase(ctx context.Context, dsn string) (database, error) {
	switch scheme, _, _ := strings.Cut(dsn, ":"); scheme {
	case "sqlite":
		return openSQLite(ctx, dsn)
	case "postgres", "postgresql":
		return openPostgres(ctx, dsn)
	}
	return nil, errors.New("-db names no database that is known here: give sqlite:FILE or postgres://HOST/NAME") // it may hold a password
}
