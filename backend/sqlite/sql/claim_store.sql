-- The state that a claim operation leaves. 1 run number, 2 wake, 3 token, 4 claimed at, 5 attempts, 6 abandons,
-- 7 poisoned at, 8 poison reason
update belay_runs set wake_at = ?2, claim_token = ?3, claimed_at = ?4, claim_attempts = ?5, claim_abandons = ?6,
  poisoned_at = ?7, poison_reason = ?8
where no = ?1
