-- The operational state of one run. 1 run id
select no, id, owner, graph_id, graph_hash, status, wake_at, claim_token, claimed_at, claim_attempts, claim_abandons,
  poisoned_at, poison_reason, checkpoint_seq
from belay_runs where id = ?1
