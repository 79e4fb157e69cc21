-- Frees a start key that points at no run of its own. 1 owner, 2 graph id, 3 key
delete from :"schema".start_keys k
where k.owner = $1::text and k.graph_id = $2::text and k.start_key = $3::text
  and not exists (select from :"schema".runs r where r.id = k.run_id and r.owner = k.owner and r.graph_id = k.graph_id)
returning k.start_key
