package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

const (
	// connections are those of every pool, belay's, river's and the raw programs'.
	connections = 8
	// startBatch is how many runs one StartMany starts.
	startBatch = 500
	// starters is how many insert at once, for belay and for river.
	starters = 2
)

// input is what a run is started with: its number, and state that makes its document as large as
// the row says.
type input struct {
	N       int    `json:"n"`
	Payload string `json:"payload"`
}

// numbered is what the node reads.
type numbered struct {
	N int `json:"n"`
}

// chain is a graph of so many nodes, one after the other, which change nothing.
func chain(nodes int) string {
	var b strings.Builder
	b.WriteString("id: chain\ninputs: {n: {schema: {type: integer}, required: true}, payload: {schema: {type: string}, required: true}}\nnodes:\n")
	for i := range nodes {
		fmt.Fprintf(&b, "  step%d: {use: work, reads: {n: n}}\n", i)
	}
	b.WriteString("edges:\n  in: {from: $start, to: step0}\n")
	for i := range nodes - 1 {
		fmt.Fprintf(&b, "  next%d: {from: step%d, to: step%d}\n", i, i, i+1)
	}
	fmt.Fprintf(&b, "  out: {from: step%d, to: $finish}\n", nodes-1)
	return b.String()
}

// belayRuns is an engine with a published graph, and a count of what it executed.
type belayRuns struct {
	engine *belay.Engine
	ref    belay.GraphRef
	seen   *seen
	nodes  int
}

// newBelay makes an engine on a store for n runs of a chain.
func newBelay(ctx context.Context, store backend.Store, slots, nodes, n int) (*belayRuns, error) {
	b := &belayRuns{seen: newSeen(n), nodes: nodes}
	types := node.NewRegistry()
	types.Add(node.Of("work", 1, func(_ context.Context, in numbered) (struct{}, error) {
		b.seen.add(in.N)
		return struct{}{}, nil
	}))
	var err error
	if b.engine, err = belay.New(belay.Config{Backend: store, Nodes: types, Concurrency: slots, Logger: quiet()}); err != nil {
		return nil, err
	}
	doc, err := graph.ParseYAML([]byte(chain(nodes)))
	if err != nil {
		return nil, err
	}
	b.ref, err = b.engine.Publish(ctx, doc)
	return b, err
}

// startAll starts runs 0 to n-1, in batches.
func (b *belayRuns) startAll(ctx context.Context, n int, payload string) error {
	batches := (n + startBatch - 1) / startBatch
	return parallel(ctx, starters, batches, func(ctx context.Context, i int) error {
		var runs []belay.NewRun
		for k := i * startBatch; k < min(n, (i+1)*startBatch); k++ {
			runs = append(runs, belay.NewRun{Input: input{N: k, Payload: payload}})
		}
		started, err := b.engine.StartMany(ctx, b.ref, runs)
		if err != nil {
			return err
		}
		for _, s := range started {
			if s.Err != nil {
				return s.Err
			}
		}
		return nil
	})
}

// drain drives everything that is due.
func (b *belayRuns) drain(ctx context.Context) error {
	_, err := b.engine.Drain(ctx, belay.DrainOptions{})
	return err
}

// serve runs the engine until the stop it answers is called.
func (b *belayRuns) serve(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- b.engine.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// startAndAwait is what a caller waits for: one run, from its start to its end.
func (b *belayRuns) startAndAwait(ctx context.Context, n int, payload string) error {
	r, err := b.engine.Start(ctx, b.ref, input{N: n, Payload: payload}, belay.StartOptions{})
	if err != nil {
		return err
	}
	r, err = b.engine.Await(ctx, r.ID)
	if err == nil && r.Status != run.Done {
		err = wrong("a run ended as %s", r.Status)
	}
	return err
}

// check proves that n runs are done, each executed once a node and with a whole history.
func (b *belayRuns) check(ctx context.Context, store backend.Store, n int) error {
	if err := b.seen.each(int32(b.nodes)); err != nil {
		return err
	}
	found := 0
	query := backend.Query{Limit: backend.MaxLimit}
	for more := true; more; {
		page, err := store.ListRuns(ctx, backend.System(), query)
		if err != nil {
			return err
		}
		for _, r := range page.Runs {
			if r.Status != run.Done {
				return wrong("run %s is %s", r.Run, r.Status)
			}
			found++
		}
		query.Before, more = page.Next, page.HasMore
	}
	if found != n {
		return wrong("%d runs are stored, %d were started", found, n)
	}
	return nil
}

// inPostgres makes a store in a schema of its own; done drops it.
func inPostgres(ctx context.Context, e *env, opts postgres.Options) (store *postgres.Store, pool *pgxpool.Pool, done func(), err error) {
	if pool, err = e.server.pool(ctx, connections); err != nil {
		return nil, nil, nil, err
	}
	if opts.Schema == "" {
		opts.Schema = e.name("belay")
	}
	opts.Logger = quiet()
	if store, err = postgres.New(pool, opts); err != nil {
		pool.Close()
		return nil, nil, nil, err
	}
	return store, pool, func() {
		_ = store.Close()
		_ = drop(context.WithoutCancel(ctx), pool, opts.Schema)
		pool.Close()
	}, nil
}

// eventsOfRow is how many events a row holds in SQL: one of several says with which it begins.
const eventsOfRow = `case when get_byte(body, 0) = ascii('[')
	then seq + 1 - substring(convert_from(substring(body from 1 for 22), 'UTF8') from '^.([0-9]+)')::bigint else 1 end`

// checkHistories proves in SQL that n runs are done and have equally long histories.
func checkHistories(ctx context.Context, pool *pgxpool.Pool, schema string, n int) error {
	s := pgx.Identifier{schema}.Sanitize()
	var done, all, histories, shortest, longest int
	err := pool.QueryRow(ctx, `select (select count(*) filter (where status = 'done') from `+s+`.runs), (select count(*) from `+s+`.runs),
		count(*), coalesce(min(events), 0), coalesce(max(events), 0)
		from (select sum(`+eventsOfRow+`) as events from `+s+`.events group by run_id) h`).
		Scan(&done, &all, &histories, &shortest, &longest)
	switch {
	case err != nil:
		return err
	case done != n || all != n:
		return wrong("%d runs of %d are done, %d were started", done, all, n)
	case histories != n || shortest != longest:
		return wrong("%d histories of %d to %d events for %d runs", histories, shortest, longest, n)
	}
	return nil
}

// inFile makes a store in a SQLite file of its own.
func inFile(ctx context.Context, e *env) (*sqlite.Store, string, error) {
	path, err := e.file("belay.db")
	if err != nil {
		return nil, "", err
	}
	store, err := sqlite.Open(ctx, path, sqlite.Options{SharedDirectory: true})
	return store, path, err
}
