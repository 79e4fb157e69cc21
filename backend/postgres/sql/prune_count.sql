-- What prune_runs would delete in one go. 1 finished before, 2 statuses (null: any), 3 limit of runs
with gone as materialized (
  select id from :"schema".runs
  where finished_at < $1::timestamptz and ($2::text[] is null or status = any ($2::text[]))
  order by finished_at, id limit $3::bigint
)
select (select count(*) from gone), (select count(*) from :"schema".events where run_id = any (array (select id from gone)))
