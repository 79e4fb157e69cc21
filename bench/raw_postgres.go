package main

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The raw program for PostgreSQL: the statements that a run costs at least, by hand, in belay's own
// tables. Nothing is decoded, nothing is judged, and nothing but the fence is looked at.

// rawClaim claims the longest due. 1 limit, 2 prefix of the tokens.
const rawClaim = `with due as (
  select id from runs where wake_at <= now() order by wake_at, id limit $1 for no key update skip locked
)
update runs r set wake_at = null, claim_token = $2 || r.id, claimed_at = now(), claim_attempts = r.claim_attempts + 1
from due where r.id = due.id returning r.id, r.claim_token, r.checkpoint_seq, r.document`

// rawCommit commits a group under its fences, with events. 1 to 4: ids, tokens, sequences, documents; 5 whether it is the last
// commit of the runs; 6 and 7 the row of events of each: sequences and bodies.
const rawCommit = `with given as materialized (
  select * from unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $6::bigint[], $7::bytea[])
    g(id, token, expected, document, event_seq, event_body)
), committed as (
  update runs r set document = g.document, checkpoint_seq = g.expected + 1, checkpoint_id = g.id || g.expected, updated_at = now(),
    status = case when $5 then 'done' else 'running' end, finished_at = case when $5 then now() end,
    checkpoint_type = case when $5 then 'run_completed' else 'step_committed' end,
    claim_token = case when not $5 then r.claim_token end, claimed_at = case when not $5 then r.claimed_at end,
    claim_attempts = 0, claim_abandons = 0
  from given g where r.id = g.id and r.checkpoint_seq = g.expected and r.claim_token = g.token
  returning r.id, r.checkpoint_id, g.event_seq, g.event_body
), appended as (
  insert into events (run_id, seq, checkpoint_id, body) select id, event_seq, checkpoint_id, event_body from committed
)
select count(*) from committed`

// rawStart stores one run, as rawCommit commits one. 1 id, 2 document, 3 graph id, 4 graph hash, 5 and 6 the row
// of events: its sequence and body.
const rawStart = `with started as (
  insert into runs (id, owner, graph_id, graph_hash, status, started_at, updated_at, claim_token, claimed_at, claim_attempts,
    checkpoint_seq, checkpoint_type, checkpoint_id, document)
  values ($1, '', $3, $4, 'running', now(), now(), $1, now(), 1, 1, 'run_initialized', $1, $2)
), listed as (
  insert into starts (started_at, id, owner, graph_id, graph_hash) values (now(), $1, '', $3, $4)
)
insert into events (run_id, seq, checkpoint_id, body) values ($1, $5, $1, $6)`

// rawPool is a pool whose connections look for tables in one schema.
func rawPool(ctx context.Context, e *env, schema string, connections int) (*pgxpool.Pool, error) {
	dsn, err := e.server.dsn(ctx)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(withConnections(dsn, connections))
	if err != nil {
		return nil, err
	}
	config.ConnConfig.RuntimeParams["search_path"] = pgx.Identifier{schema}.Sanitize()
	return pgxpool.NewWithConfig(ctx, config)
}

// rawDrain drives everything that is due to its end, group runs at a time on each lane, and answers
// how many runs and how many commits that were.
func rawDrain(ctx context.Context, pool *pgxpool.Pool, s *script, group int) (runs, commits int64, err error) {
	var ran, committed atomic.Int64
	err = parallel(ctx, rawLanes, rawLanes, func(ctx context.Context, _ int) error {
		for {
			var ids, tokens []string
			var seqs []int64
			rows, err := pool.Query(ctx, rawClaim, group, "raw-")
			if err != nil {
				return err
			}
			for rows.Next() {
				var id, token string
				var seq int64
				var document []byte
				if err := rows.Scan(&id, &token, &seq, &document); err != nil {
					return err
				}
				ids, tokens, seqs = append(ids, id), append(tokens, token), append(seqs, seq)
			}
			if err := rows.Err(); err != nil {
				return err
			}
			if len(ids) == 0 {
				return nil
			}
			documents := make([][]byte, len(ids))
			for i := range documents {
				documents[i] = s.end
			}
			for step, events := range s.events[1:] {
				row := packed(events)
				eventSeqs, bodies := make([]int64, len(ids)), make([][]byte, len(ids))
				for i := range ids {
					eventSeqs[i], bodies[i] = row.seq, row.body
				}
				var n int64
				last := step == len(s.events)-2
				if err := pool.QueryRow(ctx, rawCommit, ids, tokens, seqs, documents, last, eventSeqs, bodies).Scan(&n); err != nil {
					return err
				}
				if n != int64(len(ids)) {
					return wrong("%d of a group of %d were committed", n, len(ids))
				}
				committed.Add(n)
				for i := range seqs {
					seqs[i]++
				}
			}
			ran.Add(int64(len(ids)))
		}
	})
	return ran.Load(), committed.Load(), err
}

// rawOne starts a run and ends it, in two round trips.
func rawOne(ctx context.Context, pool *pgxpool.Pool, s *script, graphID, graphHash, id string) error {
	row := packed(s.events[0])
	if _, err := pool.Exec(ctx, rawStart, id, s.start, graphID, graphHash, row.seq, row.body); err != nil {
		return err
	}
	row = packed(s.events[1])
	var n int
	if err := pool.QueryRow(ctx, rawCommit, []string{id}, []string{id}, []int64{1}, [][]byte{s.end}, true,
		[]int64{row.seq}, [][]byte{row.body}).Scan(&n); err != nil {
		return err
	}
	if n != 1 {
		return wrong("run %s was not committed", id)
	}
	return nil
}
