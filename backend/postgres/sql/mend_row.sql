-- Clears what a finished run does not have. 1 id
update :"schema".runs set wake_at = null, claim_token = null, claimed_at = null, poisoned_at = null, poison_reason = null,
  claim_attempts = 0, claim_abandons = 0
where id = $1::text and status in ('done', 'failed', 'cancelled')
  and (num_nonnulls(wake_at, claim_token, claimed_at, poisoned_at, poison_reason) > 0 or claim_attempts <> 0 or claim_abandons <> 0)
returning id
