package main

import (
	"context"
	"fmt"

	"github.com/belay-run/belay/backend/postgres"
)

// p4 keeps so many five-step workflows in flight: each caller starts one, waits for its end, and
// starts the next.
func p4() row {
	r := row{id: "P4", work: "five-node chains, each started and awaited (PostgreSQL)"}
	for _, inFlight := range []int{32, 100} {
		r.contests = append(r.contests, contest{
			name: fmt.Sprintf("%d in flight", inFlight),
			contestants: []contestant{
				{
					name: "belay", settings: fmt.Sprintf("Concurrency %d, pool of %d, Run, Start and Await", 2*inFlight, connections),
					run: loopBelay(inFlight, 20_000, 2_000),
				},
				{name: "dbos", settings: dbosSettings, run: loopDBOS(inFlight, 3_000, 400)},
			},
			targets: []target{{metric: "workflows/s", against: "dbos", least: 10}},
		})
	}
	return r
}

func loopBelay(inFlight, full, quick int) func(context.Context, *env) (figures, error) {
	return func(ctx context.Context, e *env) (figures, error) {
		n := e.size(full, quick)
		schema := e.name("belay")
		store, pool, done, err := inPostgres(ctx, e, postgres.Options{Schema: schema})
		if err != nil {
			return nil, err
		}
		defer done()
		b, err := newBelay(ctx, store, 2*inFlight, 5, n) // a slot is free before its caller comes back
		if err != nil {
			return nil, err
		}
		if err := settle(ctx, pool); err != nil {
			return nil, err
		}
		stop := b.serve(ctx)
		payload := text(1000)
		spent, err := e.profiled(func() error {
			return parallel(ctx, inFlight, n, func(ctx context.Context, i int) error { return b.startAndAwait(ctx, i, payload) })
		})
		if stopped := stop(); err == nil {
			err = stopped
		}
		if err != nil {
			return nil, err
		}
		if err := b.seen.each(5); err != nil {
			return nil, err
		}
		return spent.per(n, "workflow"), checkHistories(ctx, pool, schema, n)
	}
}

func loopDBOS(inFlight, full, quick int) func(context.Context, *env) (figures, error) {
	return func(ctx context.Context, e *env) (figures, error) {
		n := e.size(full, quick)
		d, err := newDBOS(ctx, e, 5, n, inFlight+10)
		if err != nil {
			return nil, err
		}
		defer d.close(ctx)
		if err := settle(ctx, d.pool); err != nil {
			return nil, err
		}
		payload := text(1000)
		spent, err := e.measured(func() error {
			return parallel(ctx, inFlight, n, func(_ context.Context, i int) error { return d.startAndAwait(i, payload) })
		})
		if err != nil {
			return nil, err
		}
		return spent.per(n, "workflow"), d.check(ctx, n)
	}
}
