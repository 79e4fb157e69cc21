-- Ready runs of one owner, the longest due first. 1 now, 2 owner
select no, id, owner, graph_id, graph_hash, status, wake_at, claim_token, claimed_at, claim_attempts, claim_abandons,
  poisoned_at, poison_reason, checkpoint_seq
from belay_runs where wake_at is not null and owner = ?2 and wake_at <= ?1 order by wake_at, id
