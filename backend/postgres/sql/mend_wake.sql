-- Makes a running run due that has nothing that would wake it. 1 id, 2 now (null: the clock's)
update :"schema".runs set wake_at = coalesce($2::timestamptz, clock_timestamp())
where id = $1::text and status = 'running' and num_nonnulls(wake_at, claim_token, claimed_at, poisoned_at, poison_reason) = 0
returning id
