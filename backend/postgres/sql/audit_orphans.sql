-- Rows of runs that are not there, and runs that no list would show
select 'rows of events', e.run_id, count(*) from :"schema".events e
where not exists (select from :"schema".runs r where r.id = e.run_id) group by e.run_id
union all
select 'starts', s.id, count(*) from :"schema".starts s
where not exists (select from :"schema".runs r where r.id = s.id and r.started_at = s.started_at and r.owner = s.owner
  and r.graph_id = s.graph_id and r.graph_hash = s.graph_hash) group by s.id
union all
select 'no start', r.id, 1 from :"schema".runs r
where not exists (select from :"schema".starts s where s.id = r.id and s.started_at = r.started_at)
