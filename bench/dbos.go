package main

import (
	"context"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const dbosSettings = "RunWorkflow without a queue, steps by RunAsStep, a pool as large as what is in flight"

// dbosRuns is dbos in a schema of its own.
type dbosRuns struct {
	dbos   dbos.Context
	pool   *pgxpool.Pool
	schema string
	seen   *seen
	steps  int
}

// newDBOS launches dbos with a workflow of so many steps, for n workflows.
func newDBOS(ctx context.Context, e *env, steps, n, pooled int) (*dbosRuns, error) {
	pool, err := e.server.pool(ctx, pooled)
	if err != nil {
		return nil, err
	}
	d := &dbosRuns{pool: pool, schema: e.name("dbos"), seen: newSeen(n), steps: steps}
	d.dbos, err = dbos.NewContext(ctx, dbos.Config{
		AppName: "bench", SystemDBPool: pool, DatabaseSchema: d.schema, Logger: quiet(), ApplicationVersion: "bench",
	})
	if err != nil {
		return nil, err
	}
	dbos.RegisterWorkflow(d.dbos, d.workflow, dbos.WithWorkflowName("chain"))
	return d, dbos.Launch(d.dbos)
}

func (d *dbosRuns) workflow(ctx dbos.Context, in input) (int, error) {
	for range d.steps {
		if _, err := dbos.RunAsStep(ctx, func(context.Context) (int, error) {
			d.seen.add(in.N)
			return in.N, nil
		}, dbos.WithStepName("work")); err != nil {
			return 0, err
		}
	}
	return in.N, nil
}

// startAndAwait runs one workflow and waits for its result.
func (d *dbosRuns) startAndAwait(n int, payload string) error {
	handle, err := dbos.RunWorkflow(d.dbos, d.workflow, input{N: n, Payload: payload})
	if err != nil {
		return err
	}
	result, err := handle.GetResult()
	if err == nil && result != n {
		err = wrong("workflow %d answered %d", n, result)
	}
	return err
}

// check proves that n workflows succeeded, each step executed and stored once.
func (d *dbosRuns) check(ctx context.Context, n int) error {
	if err := d.seen.each(int32(d.steps)); err != nil {
		return err
	}
	var succeeded, all, steps int
	s := pgx.Identifier{d.schema}.Sanitize()
	err := d.pool.QueryRow(ctx, "select count(*) filter (where status = 'SUCCESS'), count(*), (select count(*) from "+s+".operation_outputs) from "+
		s+".workflow_status").Scan(&succeeded, &all, &steps)
	if err == nil && (succeeded != n || all != n || steps != n*d.steps) {
		err = wrong("%d workflows of %d succeeded with %d steps, %d were started", succeeded, all, steps, n)
	}
	return err
}

func (d *dbosRuns) close(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	dbos.Shutdown(d.dbos, 5*time.Second)
	_ = drop(ctx, d.pool, d.schema)
	d.pool.Close()
}
