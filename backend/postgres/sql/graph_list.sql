-- Versions before a position, newest first. 1 owner, 2 graph id, 3 and 4 position (null: the newest), 5 limit
select graph_hash, published_at from :"schema".graphs
where owner = $1::text and graph_id = $2::text and (published_at, graph_hash) < (coalesce($3::timestamptz, 'infinity'), $4::text)
order by published_at desc, graph_hash desc limit $5::bigint
