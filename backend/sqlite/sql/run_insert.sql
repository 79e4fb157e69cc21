-- Without RETURNING, which would make SQLite look for children of the new row.
-- 1 id, 2 owner, 3 graph id, 4 graph hash, 5 status, 6 started, 7 updated, 8 wake, 9 token, 10 claimed at,
-- 11 attempts, 12 checkpoint sequence, 13 checkpoint type, 14 checkpoint id
insert into belay_runs (id, owner, graph_id, graph_hash, status, started_at, updated_at, wake_at, claim_token,
  claimed_at, claim_attempts, checkpoint_seq, checkpoint_type, checkpoint_id)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
