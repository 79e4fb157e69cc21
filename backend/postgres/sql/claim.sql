-- ClaimDue by age. 1 now (null: the clock's), 2 not before (null: none), 3 ttl in microseconds, 4 limit, 5 prefer expired
-- (null: neither), 6 maximum of attempts, 7 tokens, 8 with documents
with instant as materialized (
  select coalesce($1::timestamptz, greatest(clock_timestamp(), $2::timestamptz)) as now
), ready as materialized (
  select id, wake_at as at, 1 as class, claim_attempts from :"schema".runs
  where wake_at <= (select now from instant)
  order by wake_at, id limit $4::bigint for no key update skip locked
), expired as materialized (
  select id, claimed_at as at, 2 as class, claim_attempts from :"schema".runs
  where claimed_at < (select now from instant) - $3::bigint * interval '1 microsecond'
  order by claimed_at, id limit $4::bigint for no key update skip locked
), ranked as (
  select d.*, row_number() over (partition by class order by at, id) as nth
  from (select * from ready union all select * from expired) d
), taken as materialized (
  select id, at, class, claim_attempts < $6::integer as lease,
    row_number() over (order by case
      when $4::bigint = 1 then coalesce((class = 2) <> $5::boolean, false)
      else nth > 1 end, at, id) as nth
  from ranked order by nth limit $4::bigint
), claimed as (
  update :"schema".runs r set
    wake_at = null,
    claim_token = case when t.lease then ($7::text[])[t.nth] end,
    claimed_at = case when t.lease then i.now end,
    claim_attempts = r.claim_attempts + t.lease::integer,
    poisoned_at = case when not t.lease then i.now end,
    poison_reason = case when not t.lease then 'max_claim_attempts_exceeded' end
  from taken t, instant i
  where r.id = t.id
  returning r.id, r.owner, r.graph_id, r.graph_hash, r.checkpoint_seq, r.claim_token, r.claim_attempts, t.class,
    case when $8::boolean and t.lease then r.document end as document
)
select i.now, c.* from instant i left join claimed c on true
