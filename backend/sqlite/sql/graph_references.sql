-- How many runs reference a graph version, as far as the limit. 1 owner, 2 graph id, 3 graph hash, 4 limit
select count(*) from (
  select 1 from belay_runs where graph_hash = ?3 and graph_id = ?2 and owner = ?1 limit ?4)
