-- Commits of different runs, each under its fence; a member that is locked elsewhere is left out, and so is one that does
-- not match. Answers the ids of those that were committed. 1 owner (null: any), 2 to 17 arrays: ids, expected sequences,
-- tokens, graph ids, graph hashes, started, statuses, updated, finished, wakes (null with due: now), due, retain, types,
-- checkpoint ids, documents, now (null: the clock's); 18 to 22 the row of events of each: sequence (0: none), first
-- event's sequence, from which on the run must have none, checkpoint id, body, digest. Documents are taken from their array
-- when they are stored, since what is in "given" is copied more than once.
with given as materialized (
  select * from unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::text[],
    $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $12::boolean[], $13::boolean[], $14::text[], $15::text[],
    $17::timestamptz[], $18::bigint[], $19::bigint[], $20::text[], $21::bytea[], $22::bytea[]) with ordinality
    g(id, expected, token, graph_id, graph_hash, started_at, status, updated_at, finished_at, wake_at, due, retain, type,
      checkpoint_id, now, event_seq, event_first, event_checkpoint_id, event_body, event_digest, nth)
), free as materialized (
  select r.id from given g join :"schema".runs r on r.id = g.id
  where r.checkpoint_seq = g.expected and r.claim_token = g.token and r.checkpoint_id <> g.checkpoint_id
    and r.graph_id = g.graph_id and r.graph_hash = g.graph_hash and r.started_at = g.started_at
    and ($1::text is null or r.owner = $1::text)
    and (select true from :"schema".events e where e.run_id = r.id and e.seq >= g.event_first limit 1) is null
  order by r.id
  for no key update of r skip locked
), committed as (
  update :"schema".runs r set
    document = ($16::bytea[])[g.nth], status = g.status, updated_at = g.updated_at, finished_at = g.finished_at,
    checkpoint_seq = g.expected + 1, checkpoint_type = g.type, checkpoint_id = g.checkpoint_id,
    wake_at = case when g.due then coalesce(g.wake_at, g.now, clock_timestamp()) end,
    claim_token = case when g.retain then r.claim_token end,
    claimed_at = case when g.retain then greatest(r.claimed_at, coalesce(g.now, clock_timestamp())) end,
    claim_attempts = 0, claim_abandons = 0, poisoned_at = null, poison_reason = null
  from given g
  where r.id = g.id and (g.id in (select id from free)) is true
  returning r.id, g.event_seq, g.event_checkpoint_id, g.event_body, g.event_digest
), appended as (
  insert into :"schema".events (run_id, seq, checkpoint_id, body, digest)
  select id, event_seq, event_checkpoint_id, event_body, event_digest from committed where event_seq > 0
)
select id from committed
