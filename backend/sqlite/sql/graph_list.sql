-- 1 owner, 2 graph id, 3 and 4 the position before the page, 5 limit
select graph_hash, published_at from belay_graphs
where owner = ?1 and graph_id = ?2 and (published_at, graph_hash) < (?3, ?4)
order by published_at desc, graph_hash desc limit ?5
