-- 1 id, 2 token, 3 now (null: the clock's)
update :"schema".runs set claimed_at = greatest(claimed_at, coalesce($3::timestamptz, clock_timestamp()))
where id = $1::text and claim_token = $2::text
returning id
