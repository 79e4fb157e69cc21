-- 1 and 2 the position before the page, 3 graph id or '', 4 graph hash or '', 5 statuses as ',a,b,' or '', 6 limit
select id, owner, graph_id, graph_hash, status, checkpoint_seq, started_at, updated_at, finished_at, wake_at,
  claimed_at, claim_attempts, claim_abandons, poisoned_at, poison_reason
from belay_runs where (started_at, id) < (?1, ?2)
  and (?3 = '' or +graph_id = ?3) and (?4 = '' or +graph_hash = ?4) and (?5 = '' or instr(?5, ',' || status || ',') > 0)
order by started_at desc, id desc limit ?6
