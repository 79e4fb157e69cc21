-- Deletes finished runs with everything of them, the longest finished first; those that somebody else locks are left for
-- another time. 1 finished before, 2 statuses (null: any), 3 limit of runs
with gone as materialized (
  select id, started_at from :"schema".runs
  where finished_at < $1::timestamptz and ($2::text[] is null or status = any ($2::text[]))
  order by finished_at, id limit $3::bigint for update skip locked
), event as (
  delete from :"schema".events e using gone g where e.run_id = g.id returning 1
), key as (
  delete from :"schema".start_keys k using gone g where k.run_id = g.id
), start as (
  delete from :"schema".starts s using gone g where s.started_at = g.started_at and s.id = g.id
), run as (
  delete from :"schema".runs r using gone g where r.id = g.id returning 1
)
select (select count(*) from run), (select count(*) from event)
