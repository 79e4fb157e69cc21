-- A run with its events, unless its graph is absent or its id is taken. 1 id, 2 owner, 3 graph id, 4 graph hash,
-- 5 started, 6 updated, 7 sequence, 8 checkpoint id, 9 document, 10 now (null: the clock's), 11 wake (null: now),
-- 12 token (null: due), 13 to 16 rows of events: sequences, checkpoint ids, bodies, digests
with instant as materialized (
  select coalesce($10::timestamptz, clock_timestamp()) as now
), graph as materialized (
  select from :"schema".graphs where owner = $2::text and graph_id = $3::text and graph_hash = $4::text
), run as (
  insert into :"schema".runs (id, owner, graph_id, graph_hash, status, started_at, updated_at, wake_at, claim_token, claimed_at,
    claim_attempts, checkpoint_seq, checkpoint_type, checkpoint_id, document)
  select $1::text, $2::text, $3::text, $4::text, 'running', $5::timestamptz, $6::timestamptz,
    case when $12::text is null then coalesce($11::timestamptz, i.now) end, $12::text,
    case when $12::text is not null then i.now end, ($12::text is not null)::integer,
    $7::bigint, 'run_initialized', $8::text, $9::bytea
  from instant i, graph
  on conflict (id) do nothing
  returning id
), start as (
  insert into :"schema".starts (started_at, id, owner, graph_id, graph_hash)
  select $5::timestamptz, id, $2::text, $3::text, $4::text from run
), event as (
  insert into :"schema".events (run_id, seq, checkpoint_id, body, digest)
  select r.id, e.seq, e.checkpoint_id, e.body, e.digest
  from run r, unnest($13::bigint[], $14::text[], $15::bytea[], $16::bytea[]) e(seq, checkpoint_id, body, digest)
)
select exists (select from graph), exists (select from run), now from instant
