package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverSettings are those of river's own benchmark (cmd/river/riverbench): fetches follow each other
// quickly, and many workers make large batches.
const riverSettings = "FetchCooldown 2 ms, FetchPollInterval 20 ms, MaxWorkers 2000, InsertMany by 5000, as river's own benchmark; pool of 8"

const (
	riverWorkers     = 2000
	riverInsertBatch = 5000
)

type riverArgs struct {
	Num     int    `json:"num"`
	Payload string `json:"payload"`
}

func (riverArgs) Kind() string { return "bench" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	seen *seen
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	w.seen.add(job.Args.Num)
	return nil
}

// riverJobs is a river client in a schema of its own.
type riverJobs struct {
	client  *river.Client[pgx.Tx]
	pool    *pgxpool.Pool
	schema  string
	seen    *seen
	events  <-chan *river.Event // of jobs that completed, which means that this is stored
	cancel  func()
	started bool
}

func newRiver(ctx context.Context, e *env, n int) (*riverJobs, error) {
	pool, err := e.server.pool(ctx, connections)
	if err != nil {
		return nil, err
	}
	r := &riverJobs{pool: pool, schema: e.name("river"), seen: newSeen(n)}
	if _, err := pool.Exec(ctx, "create schema "+pgx.Identifier{r.schema}.Sanitize()); err != nil {
		return nil, err
	}
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Schema: r.schema, Logger: quiet()})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{seen: r.seen})
	r.client, err = river.NewClient(driver, &river.Config{
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		Schema: r.schema, Workers: workers, Logger: quiet(),
	})
	if err != nil {
		return nil, err
	}
	r.events, r.cancel = r.client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: n + 1000, Kinds: []river.EventKind{river.EventKindJobCompleted, river.EventKindJobCancelled, river.EventKindJobFailed},
	})
	return r, nil
}

// insertAll inserts jobs 0 to n-1, in batches; quickly means by COPY, without answers.
func (r *riverJobs) insertAll(ctx context.Context, n int, payload string, quickly bool) error {
	batches := (n + riverInsertBatch - 1) / riverInsertBatch
	return parallel(ctx, starters, batches, func(ctx context.Context, i int) error {
		var params []river.InsertManyParams
		for k := i * riverInsertBatch; k < min(n, (i+1)*riverInsertBatch); k++ {
			params = append(params, river.InsertManyParams{Args: riverArgs{Num: k, Payload: payload}})
		}
		if quickly {
			_, err := r.client.InsertManyFast(ctx, params)
			return err
		}
		_, err := r.client.InsertMany(ctx, params)
		return err
	})
}

func (r *riverJobs) start(ctx context.Context) error {
	r.started = true
	return r.client.Start(ctx)
}

// await takes n completions.
func (r *riverJobs) await(ctx context.Context, n int) error {
	for range n {
		select {
		case event := <-r.events:
			if event == nil || event.Kind != river.EventKindJobCompleted {
				return wrong("a job did not complete")
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// check proves that n jobs are completed, each worked once.
func (r *riverJobs) check(ctx context.Context, n int) error {
	if err := r.seen.each(1); err != nil {
		return err
	}
	var completed, all int
	err := r.pool.QueryRow(ctx, "select count(*) filter (where state = 'completed'), count(*) from "+pgx.Identifier{r.schema, "river_job"}.Sanitize()).
		Scan(&completed, &all)
	if err == nil && (completed != n || all != n) {
		err = wrong("%d jobs of %d are completed, %d were inserted", completed, all, n)
	}
	return err
}

func (r *riverJobs) close(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	r.cancel()
	if r.started {
		_ = r.client.Stop(ctx)
	}
	_ = drop(ctx, r.pool, r.schema)
	r.pool.Close()
}
