-- Deletes finished runs with everything of them, the longest finished first; those that somebody else locks are left for
-- another time. A row of events says with which it begins. 1 finished before, 2 statuses (null: any), 3 limit of runs
with gone as materialized (
  select id, started_at from :"schema".runs
  where finished_at < $1::timestamptz and ($2::text[] is null or status = any ($2::text[]))
  order by finished_at, id limit $3::bigint for update skip locked
), event as (
  delete from :"schema".events where run_id = any (array (select id from gone))
  returning coalesce(seq - substring(encode(substring(body from 1 for 22), 'escape') from '^[[]([0-9]{1,18}),')::bigint + 1, 1) as events
), key as (
  delete from :"schema".start_keys where run_id = any (array (select id from gone))
), start as (
  delete from :"schema".starts where ctid = any (array (
    select s.ctid from gone g cross join lateral (
      select ctid from :"schema".starts where started_at = g.started_at and id = g.id limit 1) s))
), run as (
  delete from :"schema".runs where id = any (array (select id from gone)) returning 1
)
select (select count(*) from run), (select coalesce(sum(events), 0)::bigint from event)
