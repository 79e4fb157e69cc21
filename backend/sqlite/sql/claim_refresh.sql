-- 1 run id, 2 token, 3 now
update belay_runs set claimed_at = max(claimed_at, ?3) where id = ?1 and claim_token = ?2
