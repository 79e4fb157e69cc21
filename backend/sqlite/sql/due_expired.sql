-- Runs whose claim is older than the TTL, the oldest first. 1 now - ttl
select no, id, owner, graph_id, graph_hash, status, wake_at, claim_token, claimed_at, claim_attempts, claim_abandons,
  poisoned_at, poison_reason, checkpoint_seq
from belay_runs where claimed_at is not null and claimed_at < ?1 order by claimed_at, id
