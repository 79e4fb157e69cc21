-- 1 owner, 2 graph id, 3 key
select r.no, r.id, r.status, k.held_until, r.checkpoint_id
from belay_start_keys k join belay_runs r on r.no = k.run
where k.owner = ?1 and k.graph_id = ?2 and k.start_key = ?3
