-- Start keys that point at no run of theirs. 1, 2 and 3 owner, graph id and key, or null for every one
select k.owner, k.graph_id, k.start_key, r.id from belay_start_keys k left join belay_runs r on r.no = k.run
where (?1 is null or (k.owner = ?1 and k.graph_id = ?2 and k.start_key = ?3))
  and (r.no is null or r.owner <> k.owner or r.graph_id <> k.graph_id)
