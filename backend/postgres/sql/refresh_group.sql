-- Refreshes of claims; a row that is locked elsewhere is left out. Answers each pair that was refreshed (true), and each that
-- is busy: still held by its token, as far as can be seen. 1 ids, 2 tokens, 3 now (null: the clock's)
with given as materialized (
  select * from unnest($1::text[], $2::text[]) g(id, token)
), free as materialized (
  select r.id, r.claim_token from given g join :"schema".runs r on r.id = g.id where r.claim_token = g.token
  order by r.id for no key update of r skip locked
), refreshed as (
  update :"schema".runs r set claimed_at = greatest(r.claimed_at, coalesce($3::timestamptz, clock_timestamp()))
  from given g where r.id = g.id and r.claim_token = g.token and (g.id in (select id from free)) is true
  returning r.id, r.claim_token
)
select id, claim_token, true from refreshed
union all
select r.id, r.claim_token, false from given g join :"schema".runs r on r.id = g.id
where r.claim_token = g.token and (g.id in (select id from free)) is not true
