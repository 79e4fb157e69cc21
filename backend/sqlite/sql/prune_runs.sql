-- Finished runs, the longest finished first. 1 finished before, 2 statuses as ',a,b,' or '', 3 limit, 4 and 5 after this position
select no, id, finished_at, owner, graph_id, graph_hash from belay_runs
where finished_at is not null and finished_at < ?1 and (finished_at, id) > (?4, ?5) and (?2 = '' or instr(?2, ',' || status || ',') > 0)
order by finished_at, id limit ?3
