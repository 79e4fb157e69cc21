-- 1 owner, 2 graph id, 3 graph hash, 4 published at, 5 body
insert into belay_graphs (owner, graph_id, graph_hash, published_at, body) values (?1, ?2, ?3, ?4, ?5)
on conflict (owner, graph_id, graph_hash) do nothing
