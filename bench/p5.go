package main

import (
	"context"
	"fmt"
	"time"

	"github.com/riverqueue/river"

	"github.com/belay-run/belay/backend/postgres"
)

// p5 starts one run at a time on an idle server, and waits for its end.
func p5() row {
	const full, quick = 3_000, 300
	return row{
		id: "P5", work: "one run from its start to its end, on an idle server (PostgreSQL)",
		contests: []contest{{
			contestants: []contestant{
				{name: "belay", settings: "Concurrency 10, pool of 8, Run, Start and Await", run: oneBelay(full, quick)},
				{name: "raw pgx", settings: "the insert, then the fenced update, each with its events: two round trips, two commits", run: oneRaw(full, quick)},
				{name: "river", settings: riverSettings + "; Insert, then the event of its completion", run: oneRiver(full/10, quick/10)},
				{name: "dbos", settings: dbosSettings + "; one step", run: oneDBOS(full, quick)},
			},
			targets: []target{
				{metric: "p50 ms", against: "raw pgx", most: 2.5},
				{metric: "p50 ms", against: "river", most: 1},
				{metric: "p50 ms", against: "dbos", most: 1},
			},
		}},
	}
}

// oneByOne times n calls, one after the other.
func oneByOne(n int, call func(i int) error) ([]time.Duration, error) {
	took := make([]time.Duration, 0, n)
	for i := range n {
		began := time.Now()
		if err := call(i); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

func oneBelay(full, quick int) func(context.Context, *env) (figures, error) {
	return func(ctx context.Context, e *env) (figures, error) {
		n := e.size(full, quick)
		schema := e.name("belay")
		store, pool, done, err := inPostgres(ctx, e, postgres.Options{Schema: schema})
		if err != nil {
			return nil, err
		}
		defer done()
		b, err := newBelay(ctx, store, 10, 1, n)
		if err != nil {
			return nil, err
		}
		if err := settle(ctx, pool); err != nil {
			return nil, err
		}
		stop := b.serve(ctx)
		payload := text(1000)
		var took []time.Duration
		_, err = e.profiled(func() (err error) {
			took, err = oneByOne(n, func(i int) error { return b.startAndAwait(ctx, i, payload) })
			return err
		})
		if stopped := stop(); err == nil {
			err = stopped
		}
		if err != nil {
			return nil, err
		}
		if err := b.seen.each(1); err != nil {
			return nil, err
		}
		return latencies(took), checkHistories(ctx, pool, schema, n)
	}
}

func oneRaw(full, quick int) func(context.Context, *env) (figures, error) {
	return func(ctx context.Context, e *env) (figures, error) {
		n := e.size(full, quick)
		schema := e.name("raw")
		store, pool, done, err := inPostgres(ctx, e, postgres.Options{Schema: schema})
		if err != nil {
			return nil, err
		}
		defer done()
		b, err := newBelay(ctx, store, 1, 1, 0)
		if err != nil {
			return nil, err
		}
		s, err := record(ctx, 1, text(1000))
		if err != nil {
			return nil, err
		}
		raw, err := rawPool(ctx, e, schema, 1)
		if err != nil {
			return nil, err
		}
		defer raw.Close()
		if err := settle(ctx, pool); err != nil {
			return nil, err
		}
		took, err := oneByOne(n, func(i int) error { return rawOne(ctx, raw, s, b.ref.ID, b.ref.Hash, fmt.Sprintf("raw-%022d", i)) })
		if err != nil {
			return nil, err
		}
		return latencies(took), checkHistories(ctx, pool, schema, n)
	}
}

func oneRiver(full, quick int) func(context.Context, *env) (figures, error) {
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
		if err := r.start(ctx); err != nil {
			return nil, err
		}
		payload := text(1000)
		took, err := oneByOne(n, func(i int) error {
			if _, err := r.client.Insert(ctx, riverArgs{Num: i, Payload: payload}, &river.InsertOpts{}); err != nil {
				return err
			}
			return r.await(ctx, 1)
		})
		if err != nil {
			return nil, err
		}
		return latencies(took), r.check(ctx, n)
	}
}

func oneDBOS(full, quick int) func(context.Context, *env) (figures, error) {
	return func(ctx context.Context, e *env) (figures, error) {
		n := e.size(full, quick)
		d, err := newDBOS(ctx, e, 1, n, 20)
		if err != nil {
			return nil, err
		}
		defer d.close(ctx)
		if err := settle(ctx, d.pool); err != nil {
			return nil, err
		}
		payload := text(1000)
		took, err := oneByOne(n, func(i int) error { return d.startAndAwait(i, payload) })
		if err != nil {
			return nil, err
		}
		return latencies(took), d.check(ctx, n)
	}
}
