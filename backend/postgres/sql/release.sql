-- 1 id, 2 token, 3 now (null: the clock's), 4 delay in microseconds, 5 refund
update :"schema".runs set
  claim_token = null, claimed_at = null,
  wake_at = coalesce($3::timestamptz, clock_timestamp()) + $4::bigint * interval '1 microsecond',
  claim_attempts = greatest(0, claim_attempts - $5::boolean::integer)
where id = $1::text and claim_token = $2::text
returning id
