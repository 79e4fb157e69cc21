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
// commit of the runs; 6 to 9 events: run ids, sequences, checkpoint ids, bodies.
const rawCommit = `with given as materialized (
  select * from unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[]) g(id, token, expected, document)
), committed as (
  update runs r set document = g.document, checkpoint_seq = g.expected + 1, checkpoint_id = g.id || g.expected, updated_at = now(),
    status = case when $5 then 'done' else 'running' end, finished_at = case when $5 then now() end,
    checkpoint_type = case when $5 then 'run_completed' else 'step_committed' end,
    claim_token = case when not $5 then r.claim_token end, claimed_at = case when not $5 then r.claimed_at end,
    claim_attempts = 0, claim_abandons = 0
  from given g where r.id = g.id and r.checkpoint_seq = g.expected and r.claim_token = g.token
  returning r.id
), appended as (
  insert into events (run_id, seq, checkpoint_id, body)
  select e.run_id, e.seq, e.checkpoint_id, e.body
  from unnest($6::text[], $7::bigint[], $8::text[], $9::bytea[]) e(run_id, seq, checkpoint_id, body)
  where (e.run_id in (select id from committed)) is true
)
select count(*) from committed`

// rawStart stores one run, as rawCommit commits one. 1 id, 2 document, 3 graph id, 4 graph hash, 5 to 7 events.
const rawStart = `with started as (
  insert into runs (id, owner, graph_id, graph_hash, status, started_at, updated_at, claim_token, claimed_at, claim_attempts,
    checkpoint_seq, checkpoint_type, checkpoint_id, document)
  values ($1, '', $3, $4, 'running', now(), now(), $1, now(), 1, 1, 'run_initialized', $1, $2)
), listed as (
  insert into starts (started_at, id, owner, graph_id, graph_hash) values (now(), $1, '', $3, $4)
)
insert into events (run_id, seq, checkpoint_id, body)
select $1, e.seq, e.checkpoint_id, e.body from unnest($5::bigint[], $6::text[], $7::bytea[]) e(seq, checkpoint_id, body)`

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

// rawEvents are the events of one commit, for several runs.
type rawEvents struct {
	runs        []string
	seqs        []int64
	checkpoints []*string
	bodies      [][]byte
}

func (v *rawEvents) add(id string, events []recorded) {
	for _, event := range events {
		v.runs, v.seqs, v.bodies = append(v.runs, id), append(v.seqs, event.seq), append(v.bodies, event.body)
		var checkpoint *string
		if event.closes {
			checkpoint = &id
		}
		v.checkpoints = append(v.checkpoints, checkpoint)
	}
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
				var given rawEvents
				for _, id := range ids {
					given.add(id, events)
				}
				var n int64
				last := step == len(s.events)-2
				if err := pool.QueryRow(ctx, rawCommit, ids, tokens, seqs, documents, last,
					given.runs, given.seqs, given.checkpoints, given.bodies).Scan(&n); err != nil {
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
	var events rawEvents
	events.add(id, s.events[0])
	if _, err := pool.Exec(ctx, rawStart, id, s.start, graphID, graphHash, events.seqs, events.checkpoints, events.bodies); err != nil {
		return err
	}
	events = rawEvents{}
	events.add(id, s.events[1])
	var n int
	if err := pool.QueryRow(ctx, rawCommit, []string{id}, []string{id}, []int64{1}, [][]byte{s.end}, true,
		events.runs, events.seqs, events.checkpoints, events.bodies).Scan(&n); err != nil {
		return err
	}
	if n != 1 {
		return wrong("run %s was not committed", id)
	}
	return nil
}
