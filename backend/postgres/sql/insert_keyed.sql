-- A run with its events under a start key, unless its graph is absent or its key is held. A taken id is a unique
-- violation, which gives the key back. 1 to 16 as for insert, 17 key, 18 window in microseconds
with instant as materialized (
  select coalesce($10::timestamptz, clock_timestamp()) as now
), graph as materialized (
  select from :"schema".graphs where owner = $2::text and graph_id = $3::text and graph_hash = $4::text
), key as (
  insert into :"schema".start_keys as k (owner, graph_id, start_key, run_id, held_until)
  select $2::text, $3::text, $17::text, $1::text, i.now + $18::bigint * interval '1 microsecond' from instant i, graph
  on conflict (owner, graph_id, start_key) do update set run_id = excluded.run_id, held_until = excluded.held_until
  where k.held_until <= (select now from instant)
    and exists (select from :"schema".runs h where h.id = k.run_id and h.finished_at is not null)
  returning run_id
), run as (
  insert into :"schema".runs (id, owner, graph_id, graph_hash, status, started_at, updated_at, wake_at, claim_token, claimed_at,
    claim_attempts, checkpoint_seq, checkpoint_type, checkpoint_id, document)
  select $1::text, $2::text, $3::text, $4::text, 'running', $5::timestamptz, $6::timestamptz,
    case when $12::text is null then coalesce($11::timestamptz, i.now) end, $12::text,
    case when $12::text is not null then i.now end, ($12::text is not null)::integer,
    $7::bigint, 'run_initialized', $8::text, $9::bytea
  from instant i, key
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
