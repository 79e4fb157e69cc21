-- Runs as they are stored. 1 after this id, 2 limit, 3 ids (null: every one)
select r.id, r.owner, r.graph_id, r.graph_hash, r.status, r.wake_at, r.claim_token, r.claimed_at, r.claim_attempts, r.claim_abandons,
  r.poisoned_at, r.poison_reason, r.checkpoint_seq, r.checkpoint_id, r.started_at, r.updated_at, r.finished_at, r.document,
  (select true from :"schema".graphs g where g.owner = r.owner and g.graph_id = r.graph_id and g.graph_hash = r.graph_hash) is true
from :"schema".runs r
where r.id > $1::text and ($3::text[] is null or r.id = any ($3::text[]))
order by r.id limit $2::bigint
