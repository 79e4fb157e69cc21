-- Runs as they are stored. 1 after this number, 2 limit, 3 a run id or null for every one
select r.no, r.id, r.owner, r.graph_id, r.graph_hash, r.status, r.wake_at, r.claim_token, r.claimed_at, r.claim_attempts,
  r.claim_abandons, r.poisoned_at, r.poison_reason, r.checkpoint_seq, r.started_at, r.updated_at, r.finished_at, r.checkpoint_id,
  d.body, g.no
from belay_runs r
left join belay_documents d on d.run = r.no
left join belay_graphs g on g.owner = r.owner and g.graph_id = r.graph_id and g.graph_hash = r.graph_hash
where r.no > ?1 and (?3 is null or r.id = ?3) order by r.no limit ?2
