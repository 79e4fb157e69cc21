-- Start keys that point at no run of theirs
select k.owner, k.graph_id, k.start_key, r.id
from :"schema".start_keys k left join :"schema".runs r on r.id = k.run_id
where r.id is null or r.owner <> k.owner or r.graph_id <> k.graph_id
order by k.owner, k.graph_id, k.start_key
