-- What prune_runs would delete in one go. 1 finished before, 2 statuses (null: any), 3 limit of runs. (A row of events
-- says with which it begins.)
with gone as materialized (
  select id from :"schema".runs
  where finished_at < $1::timestamptz and ($2::text[] is null or status = any ($2::text[]))
  order by finished_at, id limit $3::bigint
)
select (select count(*) from gone), (
  select coalesce(sum(coalesce(seq - substring(encode(substring(body from 1 for 22), 'escape') from '^[[]([0-9]{1,18}),')::bigint + 1, 1)), 0)::bigint
  from :"schema".events where run_id = any (array (select id from gone)))
