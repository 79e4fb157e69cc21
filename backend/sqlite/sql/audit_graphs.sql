-- Graphs as they are stored. 1 after this number, 2 limit
select no, owner, graph_id, graph_hash, body from belay_graphs where no > ?1 order by no limit ?2
