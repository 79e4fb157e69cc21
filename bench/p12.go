package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend/postgres"
)

// committers is how many commit at once.
const committers = 32

// p12 commits from many callers, each commit one that makes a run due and so is announced.
func p12() row {
	const full, quick = 40_000, 4_000
	return row{
		id: "P12", work: "32 callers commit starts, one each, with wake notifications (PostgreSQL)",
		contests: []contest{{
			contestants: []contestant{
				{name: "belay", settings: "another store on the schema listens; pool of 32", run: commitStarts(full, quick, false)},
				{name: "belay, silent", settings: "Options.PollOnly: no NOTIFY, no LISTEN; pool of 32", run: commitStarts(full, quick, true)},
			},
			targets: []target{{metric: "commits/s", against: "belay, silent", least: 0.9}},
		}},
	}
}

func commitStarts(full, quick int, silent bool) func(context.Context, *env) (figures, error) {
	return func(ctx context.Context, e *env) (figures, error) {
		n := e.size(full, quick)
		pool, err := e.server.pool(ctx, committers)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		schema := e.name("wakes")
		defer func() { _ = drop(context.WithoutCancel(ctx), pool, schema) }()
		store, err := postgres.New(pool, postgres.Options{Schema: schema, PollOnly: silent, Logger: quiet()})
		if err != nil {
			return nil, err
		}
		defer store.Close()
		listener, heard, err := listen(ctx, e, schema, silent)
		if err != nil {
			return nil, err
		}
		defer listener()
		b, err := newBelay(ctx, store, 1, 1, n)
		if err != nil {
			return nil, err
		}
		if err := settle(ctx, pool); err != nil {
			return nil, err
		}
		payload := text(1000)
		spent, err := e.profiled(func() error {
			return parallel(ctx, committers, n, func(ctx context.Context, i int) error {
				_, err := b.engine.Start(ctx, b.ref, input{N: i, Payload: payload}, belay.StartOptions{})
				return err
			})
		})
		if err != nil {
			return nil, err
		}
		if !silent && heard() < 2 {
			return nil, wrong("the listener heard nothing")
		}
		f := spent.per(n, "commit")
		return f, checkStarted(ctx, pool, schema, n)
	}
}

// listen subscribes to a schema with a store of its own, and counts what it hears.
func listen(ctx context.Context, e *env, schema string, silent bool) (done func(), heard func() int, err error) {
	pool, err := e.server.pool(ctx, 2)
	if err != nil {
		return nil, nil, err
	}
	store, err := postgres.New(pool, postgres.Options{Schema: schema, PollOnly: silent, Logger: quiet()})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	wakes, err := store.Subscribe(ctx)
	if err != nil {
		cancel()
		_ = store.Close()
		pool.Close()
		return nil, nil, err
	}
	counted := newSeen(1)
	go func() {
		for range wakes {
			counted.add(0)
		}
	}()
	return func() {
			cancel()
			_ = store.Close()
			pool.Close()
		}, func() int {
			counted.mu.Lock()
			defer counted.mu.Unlock()
			return int(counted.counts[0])
		}, nil
}

// checkStarted proves that n runs are due, with their first events.
func checkStarted(ctx context.Context, pool *pgxpool.Pool, schema string, n int) error {
	var due, histories int
	err := pool.QueryRow(ctx, `select (select count(*) from `+schema+`.runs where wake_at is not null and status = 'running'),
		(select count(distinct run_id) from `+schema+`.events)`).Scan(&due, &histories)
	if err == nil && (due != n || histories != n) {
		err = wrong("%d runs are due with %d histories, %d were started", due, histories, n)
	}
	return err
}
