-- Graph versions that no run is of, all but the newest of each graph; 3 deletes them. What a dry run would delete of runs does
-- not count. 1 published before, 2 finished before when dry (null: not dry), 3 delete, 4 statuses (null: any), 5 limit of runs
with gone as materialized (
  select id from :"schema".runs
  where finished_at < $2::timestamptz and ($4::text[] is null or status = any ($4::text[]))
  order by finished_at, id limit $5::bigint
), unused as materialized (
  select g.owner, g.graph_id, g.graph_hash from :"schema".graphs g
  where g.published_at < $1::timestamptz
    and exists (select from :"schema".graphs n where n.owner = g.owner and n.graph_id = g.graph_id
      and (n.published_at, n.graph_hash) > (g.published_at, g.graph_hash))
    and (select true from :"schema".starts s where s.owner = g.owner and s.graph_id = g.graph_id
      and s.graph_hash = g.graph_hash and (s.id in (select id from gone)) is not true limit 1) is null
), deleted as (
  delete from :"schema".graphs g using unused u
  where $3::boolean and g.owner = u.owner and g.graph_id = u.graph_id and g.graph_hash = u.graph_hash
)
select count(*) from unused
