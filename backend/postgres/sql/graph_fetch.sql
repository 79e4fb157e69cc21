-- 1 owner, 2 graph id, 3 graph hash
select body from :"schema".graphs where owner = $1::text and graph_id = $2::text and graph_hash = $3::text
