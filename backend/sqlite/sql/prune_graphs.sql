-- Graph versions that may go if nothing references them: all but the newest of each graph.
-- 1 published before, 2 after this number, 3 limit
select no, owner, graph_id, graph_hash from belay_graphs g
where no > ?2 and published_at < ?1
  and exists (select 1 from belay_graphs n where n.owner = g.owner and n.graph_id = g.graph_id
    and (n.published_at, n.graph_hash) > (g.published_at, g.graph_hash))
order by no limit ?3
