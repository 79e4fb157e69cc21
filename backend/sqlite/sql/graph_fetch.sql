-- 1 owner, 2 graph id, 3 graph hash
select body from belay_graphs where owner = ?1 and graph_id = ?2 and graph_hash = ?3
