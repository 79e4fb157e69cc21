package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/claim"
)

// p8 claims from a table that has much in it, under an old snapshot that keeps the entries of what
// was claimed before, and from one that has little.
func p8() row {
	var large, small claimTable
	return row{
		id: "P8", work: "claims beside history, after churn under an old snapshot (PostgreSQL)",
		contests: []contest{{
			setup: func(ctx context.Context, e *env) (func(), error) {
				doneLarge, err := large.fill(ctx, e, e.size(1_000_000, 40_000), e.size(200_000, 8_000), e.size(100_000, 8_000), e.size(60, 5))
				if err != nil {
					return nil, err
				}
				doneSmall, err := small.fill(ctx, e, 0, 10_000, 0, 0)
				if err != nil {
					doneLarge()
					return nil, err
				}
				return func() { doneSmall(); doneLarge() }, nil
			},
			contestants: []contestant{
				{name: "belay", settings: "1,000,000 finished and 200,000 due runs, 100,000 driven under a snapshot that is 60 s old (quick: a 25th, 5 s); ClaimDueDocuments by 10", run: large.claims},
				{name: "belay, small", settings: "10,000 due, no history; the same claims", run: small.claims},
			},
			targets: []target{{metric: "p99 ms", against: "belay, small", most: 1.5}},
		}},
	}
}

// claimTable is a schema that claims are measured in.
type claimTable struct {
	store  *postgres.Store
	pool   *pgxpool.Pool
	schema string
	due    int
}

// fill stores finished runs and due ones, then opens a snapshot and drives some of those to their end until
// the snapshot is as old as asked.
func (c *claimTable) fill(ctx context.Context, e *env, finished, due, churn, seconds int) (done func(), err error) {
	c.schema = e.name("claims")
	var closeStore func()
	if c.store, c.pool, closeStore, err = inPostgres(ctx, e, postgres.Options{Schema: c.schema}); err != nil {
		return nil, err
	}
	ends := []func(){closeStore}
	done = func() {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i]()
		}
	}
	defer func() {
		if err != nil {
			done()
		}
	}()
	// One run is driven to its end and copied: history, as far as claiming can see it.
	b, err := newBelay(ctx, c.store, drainSlots, 1, due+churn+1)
	if err != nil {
		return nil, err
	}
	if finished > 0 {
		if err := b.startAll(ctx, 1, text(1000)); err != nil {
			return nil, err
		}
		if err := b.drain(ctx); err != nil {
			return nil, err
		}
		if _, err := c.pool.Exec(ctx, c.copies(), finished); err != nil {
			return nil, err
		}
		e.progress("%d finished runs are stored", finished)
	}
	if err := b.startAll(ctx, due+churn, text(1000)); err != nil {
		return nil, err
	}
	c.due = due
	if err := settle(ctx, c.pool); err != nil {
		return nil, err
	}
	e.progress("%d due runs are stored", due+churn)
	if seconds == 0 {
		return done, nil
	}
	dsn, err := e.server.dsn(ctx)
	if err != nil {
		return nil, err
	}
	old, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	ends = append(ends, func() { _ = old.Close(context.WithoutCancel(ctx)) })
	if _, err := old.Exec(ctx, "begin isolation level repeatable read; select txid_current()"); err != nil {
		return nil, err
	}
	opened := time.Now()
	if err := c.drive(ctx, b, churn); err != nil {
		return nil, err
	}
	e.progress("%d runs were driven under the snapshot", churn)
	select {
	case <-time.After(time.Until(opened.Add(time.Duration(seconds) * time.Second))):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return done, nil
}

// copies is the statement that copies the finished run. 1 how often.
func (c *claimTable) copies() string {
	s := pgx.Identifier{c.schema}.Sanitize()
	return `insert into ` + s + `.runs (id, owner, graph_id, graph_hash, status, started_at, updated_at, finished_at, checkpoint_seq,
		checkpoint_type, checkpoint_id, document)
	select 'copy-' || n, owner, graph_id, graph_hash, status, started_at, updated_at, finished_at + n * interval '1 microsecond', checkpoint_seq,
		checkpoint_type, checkpoint_id, document
	from ` + s + `.runs, generate_series(1, $1::integer) n where status = 'done'`
}

// drive drives at least n runs to their end.
func (c *claimTable) drive(ctx context.Context, b *belayRuns, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		for b.engine.Stats().Commits < int64(n) && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	err := b.drain(ctx)
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	if done := b.engine.Stats().Commits; err == nil && done < int64(n) {
		err = fmt.Errorf("%d runs were driven, want %d", done, n)
	}
	return err
}

// claims measures claims of ten, each given back for later.
func (c *claimTable) claims(ctx context.Context, e *env) (figures, error) {
	n := e.size(300, 100)
	policy := claim.Policy{TTL: time.Minute, Limit: 10, MaxAttempts: 100}
	claimed := map[string]bool{}
	var batches []backend.ClaimedBatch
	if err := settle(ctx, c.pool); err != nil {
		return nil, err
	}
	took, err := oneByOne(n, func(int) error {
		batch, err := c.store.ClaimDueDocuments(ctx, policy)
		batches = append(batches, batch)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, batch := range batches {
		if len(batch.Leases) != policy.Limit {
			return nil, wrong("a claim answered %d runs, not %d", len(batch.Leases), policy.Limit)
		}
		for i, lease := range batch.Leases {
			if err := batch.Documents[i].Err; err != nil {
				return nil, err
			}
			if claimed[lease.Run] {
				return nil, wrong("run %s was claimed twice", lease.Run)
			}
			claimed[lease.Run] = true
			if err := c.store.ReleaseClaim(ctx, lease.Run, lease.Token, claim.ReleasePolicy{After: time.Hour, Refund: true}); err != nil {
				return nil, err
			}
		}
	}
	return latencies(took), nil
}
