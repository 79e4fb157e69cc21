-- 1 owner, 2 graph id, 3 key
delete from belay_start_keys where owner = ?1 and graph_id = ?2 and start_key = ?3
