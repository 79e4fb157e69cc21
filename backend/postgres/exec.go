package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay/backend"
)

// session runs statements: the pool, one connection's transaction, or the host's.
type session interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// run runs a statement and calls each for every row; each may be nil. What the driver
// answers is a *failure, what each answers is answered as it is.
func (s *Store) run(ctx context.Context, db session, st statement, each func(pgx.Rows) error, args ...any) error {
	text, err := s.text(st)
	if err != nil {
		return err
	}
	if pool, ok := db.(*pgxpool.Pool); ok {
		return s.onConnection(ctx, pool, text, each, args)
	}
	rows, err := db.Query(ctx, text, args...)
	return read(rows, err, each)
}

// onConnection runs a statement on a connection of the pool, prepared when the pool prepares what it runs.
func (s *Store) onConnection(ctx context.Context, pool *pgxpool.Pool, text string, each func(pgx.Rows) error, args []any) error {
	c, err := pool.Acquire(ctx)
	if err != nil {
		return &failure{&undone{err}}
	}
	defer c.Release()
	p := preparedOn(c.Conn())
	for again := false; ; again = true {
		rows, err := p.query(ctx, text, args)
		err = read(rows, err, each)
		if again || !p.outdated(ctx, text, err) {
			return err
		}
	}
}

// read calls each for every row.
func read(rows pgx.Rows, err error, each func(pgx.Rows) error) error {
	if err != nil {
		return &failure{err}
	}
	defer rows.Close()
	for rows.Next() {
		if each == nil {
			continue
		}
		if err := each(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return &failure{err}
	}
	return nil
}

// scan reads a row's columns.
func scan(rows pgx.Rows, into ...any) error {
	if err := rows.Scan(into...); err != nil {
		return &failure{err}
	}
	return nil
}

// repeat says which failures an operation may be tried again after.
type repeat uint8

const (
	// unsent: only when nothing took effect.
	unsent repeat = iota
	// always: also when it is not known, since the second time answers as the first.
	always
)

// try runs fn on the pool, and again while a repetition may cure what failed, for
// Options.RetryTimeout at most.
func (s *Store) try(ctx context.Context, op string, when repeat, fn func(db session) error) error {
	if s.isClosed() {
		return backend.ErrClosed
	}
	var wait backoff
	open := false // what became of an attempt before is not known
	for begun := time.Now(); ; {
		err := fn(s.pool)
		f, failed := errors.AsType[*failure](err)
		switch {
		case !failed:
			return err
		case s.isClosed():
			return backend.ErrClosed
		}
		n := nature(f.err)
		curable := n == backend.Transient || n == backend.Unknown && when == always
		if !curable || isEnded(ctx) || time.Since(begun) >= s.opts.RetryTimeout {
			return backend.StillOpen(fail(op, err), open)
		}
		open = open || n == backend.Unknown
		if wait.pause(ctx) != nil {
			return backend.StillOpen(fail(op, err), open)
		}
	}
}

// within runs fn in a transaction of its own. Under a default of a stricter level the
// statements after a lock would still see what was before it.
func (s *Store) within(ctx context.Context, fn func(tx pgx.Tx) error) error {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return &failure{&undone{err}}
	}
	if err := fn(tx); err != nil {
		if f, ok := errors.AsType[*failure](err); ok {
			err = &failure{&undone{f.err}}
		}
		return s.rollback(ctx, tx, err)
	}
	if err := tx.Commit(ctx); err != nil {
		return &failure{err}
	}
	return nil
}

// rollback ends a transaction even when ctx has ended, and answers why it was.
func (s *Store) rollback(ctx context.Context, tx pgx.Tx, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.RetryTimeout+time.Second)
	defer cancel()
	if err := tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		s.opts.Logger.DebugContext(ctx, "belay: the connection of a failed transaction is given up", "error", err)
	}
	return why
}

// backoff grows from 2ms to 250ms, with jitter.
type backoff struct{ next time.Duration }

func (b *backoff) pause(ctx context.Context) error {
	b.next = min(max(2*b.next, 2*time.Millisecond), 250*time.Millisecond)
	timer := time.NewTimer(b.next/2 + rand.N(b.next))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
