-- 1 id, 2 owner (null: any), 3 now (null: the clock's)
with stored as materialized (
  select id, finished_at is not null as finished, poisoned_at is not null as poisoned
  from :"schema".runs where id = $1::text and ($2::text is null or owner = $2::text) for no key update
), recovered as (
  update :"schema".runs r set
    wake_at = coalesce($3::timestamptz, clock_timestamp()), claim_token = null, claimed_at = null,
    claim_attempts = 0, claim_abandons = 0, poisoned_at = null, poison_reason = null
  from stored s where r.id = s.id and s.poisoned
)
select finished, poisoned from stored
