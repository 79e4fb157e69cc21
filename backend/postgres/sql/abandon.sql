-- 1 id, 2 token, 3 expected sequence, 4 now (null: the clock's), 5 maximum of abandons, 6 never poison, 7 retry at (null: none),
-- 8 delays in microseconds by the number of abandons before, which count when there is no retry at or 9 says so.
-- Nothing is done when the clock has passed retry at.
with instant as materialized (
  select coalesce($4::timestamptz, clock_timestamp()) as now
), stored as materialized (
  select r.id, $6::boolean or r.claim_abandons < $5::integer as retry
  from :"schema".runs r
  where r.id = $1::text and r.claim_token = $2::text and r.checkpoint_seq = $3::bigint
  for no key update
), abandoned as (
  update :"schema".runs r set
    claim_token = null, claimed_at = null,
    claim_attempts = greatest(0, r.claim_attempts - 1),
    claim_abandons = r.claim_abandons + s.retry::integer,
    wake_at = case
      when not s.retry then null
      when $7::timestamptz is null or $9::boolean
        then i.now + ($8::bigint[])[least(r.claim_abandons, cardinality($8::bigint[]) - 1) + 1] * interval '1 microsecond'
      else $7::timestamptz end,
    poisoned_at = case when not s.retry then i.now end,
    poison_reason = case when not s.retry then 'max_claim_abandons_exceeded' end
  from stored s, instant i where r.id = s.id and (i.now > $7::timestamptz) is not true
)
select (i.now > $7::timestamptz) is true, s.retry from instant i left join stored s on true
