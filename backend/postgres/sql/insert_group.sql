-- Many runs of one owner with their events, each unless its graph is absent or its id is taken; an id at most once.
-- 1 owner, 2 to 12 arrays: ids, graph ids, graph hashes, started, updated, sequences, checkpoint ids, documents, now (null:
-- the clock's), wakes (null: now), tokens (null: due); 13 to 16 the row of events of each: sequence (0: none), checkpoint id,
-- body, digest. Documents are taken from their array when they are stored, since what is in "given" is copied more than once.
with instant as materialized (
  select clock_timestamp() as clock
), given as materialized (
  select g.*, coalesce(g.given_now, i.clock) as now
  from instant i, unnest($2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[], $7::bigint[], $8::text[],
    $10::timestamptz[], $11::timestamptz[], $12::text[], $13::bigint[], $14::text[], $15::bytea[], $16::bytea[]) with ordinality
    g(id, graph_id, graph_hash, started_at, updated_at, seq, checkpoint_id, given_now, wake_at, token,
      event_seq, event_checkpoint_id, event_body, event_digest, nth)
), graph as materialized (
  select d.graph_id, d.graph_hash from (select distinct g.graph_id, g.graph_hash from given g) d
  where (select true from :"schema".graphs s where s.owner = $1::text and s.graph_id = d.graph_id and s.graph_hash = d.graph_hash)
), run as (
  insert into :"schema".runs (id, owner, graph_id, graph_hash, status, started_at, updated_at, wake_at, claim_token, claimed_at,
    claim_attempts, checkpoint_seq, checkpoint_type, checkpoint_id, document)
  select g.id, $1::text, g.graph_id, g.graph_hash, 'running', g.started_at, g.updated_at,
    case when g.token is null then coalesce(g.wake_at, g.now) end, g.token,
    case when g.token is not null then g.now end, (g.token is not null)::integer,
    g.seq, 'run_initialized', g.checkpoint_id, ($9::bytea[])[g.nth]
  from given g where ((g.graph_id, g.graph_hash) in (select graph_id, graph_hash from graph)) is true
  order by g.id
  on conflict (id) do nothing
  returning id
), start as (
  insert into :"schema".starts (started_at, id, owner, graph_id, graph_hash)
  select g.started_at, g.id, $1::text, g.graph_id, g.graph_hash from given g where (g.id in (select id from run)) is true
), event as (
  insert into :"schema".events (run_id, seq, checkpoint_id, body, digest)
  select g.id, g.event_seq, g.event_checkpoint_id, g.event_body, g.event_digest
  from given g where g.event_seq > 0 and (g.id in (select id from run)) is true
)
select g.id, ((g.graph_id, g.graph_hash) in (select graph_id, graph_hash from graph)) is true, (g.id in (select id from run)) is true, g.now
from given g
