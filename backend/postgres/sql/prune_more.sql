-- Whether there are more than so many. 1 finished before, 2 statuses (null: any), 3 that many
select exists (
  select from :"schema".runs
  where finished_at < $1::timestamptz and ($2::text[] is null or status = any ($2::text[]))
  order by finished_at, id offset $3::bigint limit 1
)
