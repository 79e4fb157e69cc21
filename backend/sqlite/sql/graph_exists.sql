-- 1 owner, 2 graph id, 3 graph hash
select 1 from belay_graphs where owner = ?1 and graph_id = ?2 and graph_hash = ?3
