-- Keeps whose turn it was. No claim waits for another's: what somebody else is writing is left to that one, and new owners are
-- added by one claim at a time. 1 owners, 2 their places among the outcomes, 3 key of the lock
with last as materialized (
  select coalesce(max(turn), 0) as turn from :"schema".turns
), served as materialized (
  select o.owner, l.turn + o.place as turn from unnest($1::text[], $2::bigint[]) o(owner, place) cross join last l
), known as materialized (
  select owner from :"schema".turns where owner = any ($1::text[]) for no key update skip locked
), moved as (
  update :"schema".turns t set turn = s.turn from served s join known k on k.owner = s.owner where t.owner = s.owner
), new as materialized (
  select s.owner, s.turn from served s where not exists (select from :"schema".turns t where t.owner = s.owner)
)
insert into :"schema".turns (owner, turn)
select n.owner, n.turn from new n where (select pg_try_advisory_xact_lock($3::bigint) from new limit 1)
on conflict (owner) do nothing
