-- A commit without a claim, on the state that the decision was made from. 1 run number, 2 expected sequence,
-- 3 expected checkpoint id, 4 checkpoint id, 5 graph hash, 6 status, 7 updated, 8 finished, 9 wake, 10 sequence, 11 type
update belay_runs set
  graph_hash = ?5, status = ?6, updated_at = ?7, finished_at = ?8, wake_at = ?9, claim_token = null, claimed_at = null,
  claim_attempts = 0, claim_abandons = 0, poisoned_at = null, poison_reason = null,
  checkpoint_seq = ?10, checkpoint_type = ?11, checkpoint_id = ?4
where no = ?1 and checkpoint_seq = ?2 and checkpoint_id = ?3
