-- Graph versions that no run references, the newest of each graph aside. 1 published before, 2 after this number, 3 limit
select no from belay_graphs g
where no > ?2 and published_at < ?1
  and exists (select 1 from belay_graphs n where n.owner = g.owner and n.graph_id = g.graph_id
    and (n.published_at, n.graph_hash) > (g.published_at, g.graph_hash))
  and not exists (select 1 from belay_runs r where r.graph_hash = g.graph_hash and r.graph_id = g.graph_id and r.owner = g.owner)
order by no limit ?3
