-- A commit without a claim, if the run is still at the sequence that it was decided on. 1 id, 2 expected sequence,
-- 3 graph hash, 4 status, 5 updated, 6 finished, 7 wake (null with due: now), 8 due, 9 type, 10 checkpoint id, 11 document,
-- 12 now (null: the clock's), 13 to 16 rows of events: sequences, checkpoint ids, bodies,
-- digests, 17 the first event's sequence, from which on the run must have none (null: it may)
with stored as materialized (
  select id, owner, graph_id, graph_hash, started_at, checkpoint_seq from :"schema".runs where id = $1::text for no key update
), graph as materialized (
  select from stored s where s.graph_hash = $3::text or (
    select true from :"schema".graphs g where g.owner = s.owner and g.graph_id = s.graph_id and g.graph_hash = $3::text)
), overlap as materialized (
  select exists (select from :"schema".events where run_id = $1::text and seq >= $17::bigint) as found
), committed as (
  update :"schema".runs r set
    document = $11::bytea, graph_hash = $3::text, status = $4::text, updated_at = $5::timestamptz, finished_at = $6::timestamptz,
    checkpoint_seq = $2::bigint + 1, checkpoint_type = $9::text, checkpoint_id = $10::text,
    wake_at = case when $8::boolean then coalesce($7::timestamptz, $12::timestamptz, clock_timestamp()) end,
    claim_token = null, claimed_at = null, claim_attempts = 0, claim_abandons = 0, poisoned_at = null, poison_reason = null
  from stored s, graph, overlap o
  where r.id = s.id and s.checkpoint_seq = $2::bigint and not o.found
  returning r.id
), migrated as (
  update :"schema".starts t set graph_hash = $3::text
  from stored s, committed c
  where t.started_at = s.started_at and t.id = s.id and t.graph_hash <> $3::text
), appended as (
  insert into :"schema".events (run_id, seq, checkpoint_id, body, digest)
  select c.id, e.seq, e.checkpoint_id, e.body, e.digest
  from committed c, unnest($13::bigint[], $14::text[], $15::bytea[], $16::bytea[]) e(seq, checkpoint_id, body, digest)
)
select exists (select from committed), exists (select from graph), s.checkpoint_seq, o.found from stored s, overlap o
