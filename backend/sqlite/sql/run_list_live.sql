-- As run_list, of statuses of runs that have not finished. 7 owner or null
select id, owner, graph_id, graph_hash, status, checkpoint_seq, started_at, updated_at, finished_at, wake_at,
  claimed_at, claim_attempts, claim_abandons, poisoned_at, poison_reason
from belay_runs where finished_at is null and (started_at, id) < (?1, ?2) and (?7 is null or +owner = ?7)
  and (?3 = '' or +graph_id = ?3) and (?4 = '' or +graph_hash = ?4) and instr(?5, ',' || status || ',') > 0
order by started_at desc, id desc limit ?6
