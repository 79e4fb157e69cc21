-- As run_list, of the owner ?7.
select id, owner, graph_id, graph_hash, status, checkpoint_seq, started_at, updated_at, finished_at, wake_at,
  claimed_at, claim_attempts, claim_abandons, poisoned_at, poison_reason
from belay_runs where owner = ?7 and (started_at, id) < (?1, ?2)
  and (?3 = '' or +graph_id = ?3) and (?4 = '' or +graph_hash = ?4) and (?5 = '' or instr(?5, ',' || status || ',') > 0)
order by started_at desc, id desc limit ?6
