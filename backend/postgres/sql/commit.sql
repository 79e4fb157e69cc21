-- A commit under its fence, with its events; else the run as it is, read under its lock. 1 id, 2 owner (null: any),
-- 3 expected sequence, 4 token, 5 graph id, 6 graph hash, 7 started, 8 status, 9 updated, 10 finished, 11 wake (null with
-- due: now), 12 due, 13 retain, 14 type, 15 checkpoint id, 16 document, 17 now (null: the clock's),
-- 18 to 21 rows of events: sequences, checkpoint ids, bodies, digests, 22 the first event's sequence, from which on the
-- run must have none (null: it may)
with stored as materialized (
  select id, owner, graph_id, graph_hash, started_at, checkpoint_seq, claim_token, checkpoint_id
  from :"schema".runs where id = $1::text and ($2::text is null or owner = $2::text)
  for no key update
), overlap as materialized (
  select exists (select from :"schema".events where run_id = $1::text and seq >= $22::bigint) as found
), committed as (
  update :"schema".runs r set
    document = $16::bytea, status = $8::text, updated_at = $9::timestamptz, finished_at = $10::timestamptz,
    checkpoint_seq = $3::bigint + 1, checkpoint_type = $14::text, checkpoint_id = $15::text,
    wake_at = case when $12::boolean then coalesce($11::timestamptz, $17::timestamptz, clock_timestamp()) end,
    claim_token = case when $13::boolean then r.claim_token end,
    claimed_at = case when $13::boolean then greatest(r.claimed_at, coalesce($17::timestamptz, clock_timestamp())) end,
    claim_attempts = 0, claim_abandons = 0, poisoned_at = null, poison_reason = null
  from stored s, overlap o
  where r.id = s.id and s.checkpoint_seq = $3::bigint and s.claim_token = $4::text and s.checkpoint_id <> $15::text
    and s.graph_id = $5::text and s.graph_hash = $6::text and s.started_at = $7::timestamptz and not o.found
  returning r.id
), appended as (
  insert into :"schema".events (run_id, seq, checkpoint_id, body, digest)
  select c.id, e.seq, e.checkpoint_id, e.body, e.digest
  from committed c, unnest($18::bigint[], $19::text[], $20::bytea[], $21::bytea[]) e(seq, checkpoint_id, body, digest)
)
select exists (select from committed), s.graph_id, s.graph_hash, s.started_at, s.checkpoint_seq, s.claim_token, s.checkpoint_id, o.found
from stored s, overlap o
