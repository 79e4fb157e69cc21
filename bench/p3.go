package main

import (
	"context"
	"time"

	"github.com/belay-run/belay/backend/postgres"
)

// p3 starts a backlog, then drains it.
func p3() row {
	const n, quick = 100_000, 5_000
	return row{
		id: "P3", work: "start many one-node runs, then drain them (PostgreSQL)",
		contests: []contest{{
			contestants: []contestant{
				{name: "belay", settings: drainSettings, run: startAndDrainBelay(n, quick)},
				{name: "river", settings: riverSettings, run: startAndDrainRiver(n, quick, false)},
				{name: "river, COPY", settings: riverSettings + ", but InsertManyFast, which answers no rows", run: startAndDrainRiver(n, quick, true)},
			},
			targets: []target{{metric: "runs/s", against: "river", least: 1.2}},
		}},
	}
}

func startAndDrainBelay(full, quick int) func(context.Context, *env) (figures, error) {
	return func(ctx context.Context, e *env) (figures, error) {
		n := e.size(full, quick)
		schema := e.name("belay")
		store, pool, done, err := inPostgres(ctx, e, postgres.Options{Schema: schema})
		if err != nil {
			return nil, err
		}
		defer done()
		b, err := newBelay(ctx, store, drainSlots, 1, n)
		if err != nil {
			return nil, err
		}
		if err := settle(ctx, pool); err != nil {
			return nil, err
		}
		payload := text(1000)
		var starting time.Duration
		spent, err := e.profiled(func() (err error) {
			if starting, err = stretch(func() error { return b.startAll(ctx, n, payload) }); err != nil {
				return err
			}
			return b.drain(ctx)
		})
		if err != nil {
			return nil, err
		}
		if err := b.seen.each(1); err != nil {
			return nil, err
		}
		f := spent.per(n, "run")
		f["starts/s"] = float64(n) / starting.Seconds()
		return f, checkHistories(ctx, pool, schema, n)
	}
}

func startAndDrainRiver(full, quick int, quickly bool) func(context.Context, *env) (figures, error) {
	return func(ctx context.Context, e *env) (figures, error) {
		n := e.size(full, quick)
		r, err := newRiver(ctx, e, n)
		if err != nil {
			return nil, err
		}
		defer r.close(ctx)
		if err := settle(ctx, r.pool); err != nil {
			return nil, err
		}
		payload := text(1000)
		var starting time.Duration
		spent, err := e.measured(func() (err error) {
			if starting, err = stretch(func() error { return r.insertAll(ctx, n, payload, quickly) }); err != nil {
				return err
			}
			if err := r.start(ctx); err != nil {
				return err
			}
			return r.await(ctx, n)
		})
		if err != nil {
			return nil, err
		}
		f := spent.per(n, "run")
		f["starts/s"] = float64(n) / starting.Seconds()
		return f, r.check(ctx, n)
	}
}
