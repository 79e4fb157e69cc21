-- Graphs as they are stored. 1 to 3 after this owner, graph id and hash, 4 limit
select owner, graph_id, graph_hash, body from :"schema".graphs
where (owner, graph_id, graph_hash) > ($1::text, $2::text, $3::text)
order by owner, graph_id, graph_hash limit $4::bigint
