package main

import (
	"context"
	"fmt"

	"github.com/belay-run/belay/backend/postgres"
)

var rawSettings = fmt.Sprintf("%d connections, each claims a group of %d and commits it with one fenced statement, events included; belay's tables", rawLanes, rawGroup)

// p2 drains a backlog beside the statements alone.
func p2() row {
	return row{
		id: "P2", work: "the same, beside the raw limit",
		contests: []contest{{
			contestants: []contestant{
				{name: "belay", settings: drainSettings, run: drainBelay(100_000, 5_000, 1, 1000, drainSlots)},
				{name: "raw pgx", settings: rawSettings, run: drainRaw(100_000, 5_000, 1, 1000, rawGroup)},
			},
			targets: []target{{metric: "runs/s", against: "raw pgx", least: 0.7}},
		}},
	}
}

// drainRaw drains the same backlog with the raw program.
func drainRaw(full, quick, nodes, payload, group int) func(context.Context, *env) (figures, error) {
	return func(ctx context.Context, e *env) (figures, error) {
		n := e.size(full, quick)
		schema := e.name("raw")
		store, pool, done, err := inPostgres(ctx, e, postgres.Options{Schema: schema})
		if err != nil {
			return nil, err
		}
		defer done()
		b, err := newBelay(ctx, store, 1, nodes, n)
		if err != nil {
			return nil, err
		}
		if err := b.startAll(ctx, n, text(payload)); err != nil {
			return nil, err
		}
		s, err := record(ctx, nodes, text(payload))
		if err != nil {
			return nil, err
		}
		raw, err := rawPool(ctx, e, schema, rawLanes)
		if err != nil {
			return nil, err
		}
		defer raw.Close()
		if err := settle(ctx, pool); err != nil {
			return nil, err
		}
		var runs, commits int64
		spent, err := e.measured(func() (err error) {
			runs, commits, err = rawDrain(ctx, raw, s, group)
			return err
		})
		switch {
		case err != nil:
			return nil, err
		case runs != int64(n) || commits != int64(n*nodes):
			return nil, wrong("%d runs and %d commits, want %d and %d", runs, commits, n, n*nodes)
		}
		f := spent.per(n, "run")
		f["commits/s"] = f["runs/s"] * float64(nodes)
		return f, checkHistories(ctx, pool, schema, n)
	}
}
