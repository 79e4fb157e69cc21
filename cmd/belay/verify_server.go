package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/proptest"
)

// scratchSchema is where a database is verified unless its DSN says another schema.
const scratchSchema = "belay_verify"

// scratchServer is scratch for a PostgreSQL database.
func scratchServer(ctx context.Context, dsn string) (open proptest.Opener, remove func() error, err error) {
	to, err := parseServer(dsn)
	if err != nil {
		return nil, nil, err
	}
	if !to.named {
		to.schema = scratchSchema
	}
	// A look at the schema, which is not there yet, says what is wrong with the way to it.
	if _, err := postgres.PendingMigrations(ctx, to.dsn, postgres.Options{Schema: to.schema}); err != nil {
		return nil, nil, (&location{}).forServer(to, err)
	}
	config, err := pgxpool.ParseConfig(to.dsn)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = max(config.MaxConns, verifyConns)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	s := &schemas{pool: pool, base: to.schema}
	first, err := s.create(ctx)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	s.free = append(s.free, first)
	return s.open, s.remove, nil
}

// verifyConns is how many connections histories of goroutines make use of.
const verifyConns = 20

// schemas are scratch schemas. They are used again and again, emptied in between, since making one
// takes longer than most histories do.
type schemas struct {
	pool *pgxpool.Pool
	base string

	mu   sync.Mutex
	made []string
	free []string
}

// create makes the next schema. One that is there is refused, and not touched.
func (s *schemas) create(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.base
	if n := len(s.made); n > 0 {
		name = fmt.Sprintf("%s_%d", s.base, n+1)
	}
	_, err := s.pool.Exec(ctx, "create schema "+pgx.Identifier{name}.Sanitize())
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok && refusal.Code == duplicateSchema {
		return "", usage(fmt.Errorf("a schema %s is there already, and is not touched", name),
			"name one that is not there yet: postgres://...?"+schemaParameter+"=NAME; or drop it, when it was left behind by a belay verify that was killed")
	}
	if err != nil {
		return "", &exitError{exitInfrastructure, fmt.Errorf("the scratch schema %s cannot be made: %w", name, err), "see that the server runs, and that the role may create a schema"}
	}
	s.made = append(s.made, name)
	return name, nil
}

const duplicateSchema = "42P06"

// take is an empty schema, until the end of t.
func (s *schemas) take(t proptest.T) string {
	t.Helper()
	s.mu.Lock()
	var name string
	if n := len(s.free); n > 0 {
		name, s.free = s.free[n-1], s.free[:n-1]
	}
	s.mu.Unlock()
	if name == "" {
		var err error
		if name, err = s.create(context.Background()); err != nil {
			t.Fatalf("%v", err)
		}
	}
	t.Cleanup(func() {
		for _, table := range []string{"events", "start_keys", "starts", "runs", "graphs", "turns"} {
			if _, err := s.pool.Exec(context.Background(), "delete from "+pgx.Identifier{name, table}.Sanitize()); err != nil {
				t.Errorf("empty the schema %s: %v", name, err)
				return
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free = append(s.free, name)
	})
	return name
}

// open opens an empty store.
func (s *schemas) open(t proptest.T) proptest.Opened {
	t.Helper()
	name, clock := s.take(t), &settable{}
	open := func(t proptest.T) *postgres.Store {
		t.Helper()
		store, err := postgres.New(s.pool, postgres.Options{Schema: name, Now: clock.now, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatalf("%v", err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return store
	}
	store := open(t)
	return proptest.Opened{Store: store, Hooks: proptest.Hooks{
		SetClock: clock.set,
		Reopen: func(t proptest.T) backend.Store {
			if err := store.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			store = open(t)
			return store
		},
		Host: func(ctx context.Context, fn func(backend.Starter) error) error {
			return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return fn(store.WithTx(tx)) })
		},
		Audit: func(ctx context.Context) ([]string, error) { return audit(ctx, store) },
	}}
}

// remove drops what was made, and says what could not be.
func (s *schemas) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, name := range s.made {
		command := "drop schema " + pgx.Identifier{name}.Sanitize() + " cascade"
		if _, err := s.pool.Exec(ctx, command, pgx.QueryExecModeSimpleProtocol); err != nil {
			errs = append(errs, &exitError{exitInfrastructure, fmt.Errorf("the scratch schema is left behind: %w", err), "drop it: " + command})
		}
	}
	closed := make(chan struct{})
	go func() { // it waits for whoever still uses a connection
		defer close(closed)
		s.pool.Close()
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
	return errors.Join(errs...)
}
