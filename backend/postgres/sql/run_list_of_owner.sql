-- Runs of one owner before a position, newest first. 1 and 2 position (null: the newest), 3 graph id, 4 graph hash, 5 statuses
-- (null: any), 6 limit, 7 owner
-- The constant limit tells the planner that few rows are wanted, which a parameter does not.
select * from (
  select r.id, r.owner, r.graph_id, r.graph_hash, r.status, r.checkpoint_seq, r.started_at, r.updated_at, r.finished_at,
    r.wake_at, r.claimed_at, r.claim_attempts, r.claim_abandons, r.poisoned_at, r.poison_reason
  from :"schema".starts s join :"schema".runs r on r.id = s.id
  where s.owner = $7::text and (s.started_at, s.id) < (coalesce($1::timestamptz, 'infinity'), $2::text)
    and ($3::text is null or s.graph_id = $3::text) and ($4::text is null or s.graph_hash = $4::text)
    and ($5::text[] is null or r.status = any ($5::text[]))
  order by s.started_at desc, s.id desc limit 1001
) page limit $6::bigint
