-- A commit that gives its claim up; it answers the last event, too. 1 run id, 2 owner or null, 3 expected sequence, 4 token, 5 checkpoint id,
-- 6 graph id, 7 graph hash, 8 started, 9 status, 10 updated, 11 sequence, 12 type, 13 wake, 14 finished
update belay_runs set
  status = ?9, updated_at = ?10, finished_at = ?14, wake_at = ?13, claim_token = null, claimed_at = null,
  claim_attempts = 0, claim_abandons = 0, poisoned_at = null, poison_reason = null,
  checkpoint_seq = ?11, checkpoint_type = ?12, checkpoint_id = ?5
where id = ?1 and (?2 is null or owner = ?2) and checkpoint_seq = ?3 and claim_token = ?4 and checkpoint_id <> ?5
  and graph_id = ?6 and graph_hash = ?7 and started_at = ?8
returning no, (select max(seq) from belay_events where run = belay_runs.no)
