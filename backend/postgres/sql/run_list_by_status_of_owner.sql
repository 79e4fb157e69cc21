-- Runs of one owner and of statuses other than done before a position, newest first. 1 and 2 position (null: the newest), 3 graph id, 4 graph hash,
-- 5 statuses, 6 limit, 7 owner
select r.* from (select distinct unnest($5::text[]) as status) q cross join lateral (
  select r.id, r.owner, r.graph_id, r.graph_hash, r.status, r.checkpoint_seq, r.started_at, r.updated_at, r.finished_at,
    r.wake_at, r.claimed_at, r.claim_attempts, r.claim_abandons, r.poisoned_at, r.poison_reason
  from :"schema".runs r
  where r.status = q.status and r.status <> 'done' and r.owner = $7::text
    and (r.started_at, r.id) < (coalesce($1::timestamptz, 'infinity'), $2::text)
    and ($3::text is null or r.graph_id = $3::text) and ($4::text is null or r.graph_hash = $4::text)
  order by r.started_at desc, r.id desc limit $6::bigint
) r
order by r.started_at desc, r.id desc limit $6::bigint
