package main

import (
	"context"
	"fmt"

	"github.com/belay-run/belay/backend/postgres"
)

// drainSlots is how many runs the engine drives at once where it drains a backlog on PostgreSQL.
const drainSlots = 400

var drainSettings = fmt.Sprintf("Concurrency %d, pool of %d, StartMany by %d, one engine, the rest as it comes", drainSlots, connections, startBatch)

// p1 drains a backlog beside river.
func p1() row {
	return row{
		id: "P1", work: "drain a backlog of one-node runs (PostgreSQL)",
		contests: []contest{{
			contestants: []contestant{
				{name: "belay", settings: drainSettings, run: drainBelay(100_000, 5_000, 1, 1000, drainSlots)},
				{name: "river", settings: riverSettings, run: drainRiver(100_000, 5_000)},
			},
			targets: []target{{metric: "runs/s", against: "river", least: 1.2}},
		}},
	}
}

// drainBelay measures how quickly a backlog is driven to its end.
func drainBelay(full, quick, nodes, payload, slots int) func(context.Context, *env) (figures, error) {
	return func(ctx context.Context, e *env) (figures, error) {
		n := e.size(full, quick)
		schema := e.name("belay")
		store, pool, done, err := inPostgres(ctx, e, postgres.Options{Schema: schema})
		if err != nil {
			return nil, err
		}
		defer done()
		b, err := newBelay(ctx, store, slots, nodes, n)
		if err != nil {
			return nil, err
		}
		if err := b.startAll(ctx, n, text(payload)); err != nil {
			return nil, err
		}
		if err := settle(ctx, pool); err != nil {
			return nil, err
		}
		spent, err := e.profiled(func() error { return b.drain(ctx) })
		if err != nil {
			return nil, err
		}
		if err := b.seen.each(int32(nodes)); err != nil {
			return nil, err
		}
		f := spent.per(n, "run")
		f["commits/s"] = f["runs/s"] * float64(nodes)
		return f, checkHistories(ctx, pool, schema, n)
	}
}

func drainRiver(full, quick int) func(context.Context, *env) (figures, error) {
	return func(ctx context.Context, e *env) (figures, error) {
		n := e.size(full, quick)
		r, err := newRiver(ctx, e, n)
		if err != nil {
			return nil, err
		}
		defer r.close(ctx)
		if err := r.insertAll(ctx, n, text(1000), true); err != nil {
			return nil, err
		}
		if err := settle(ctx, r.pool); err != nil {
			return nil, err
		}
		spent, err := e.measured(func() error {
			if err := r.start(ctx); err != nil {
				return err
			}
			return r.await(ctx, n)
		})
		if err != nil {
			return nil, err
		}
		return spent.per(n, "run"), r.check(ctx, n)
	}
}
