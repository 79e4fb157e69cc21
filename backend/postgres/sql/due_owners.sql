-- Owners with ready runs, their oldest one's wake and when they were last served, in the order of owners. 1 now, 2 from this owner on
-- (null: the one last served), 3 limit
with recursive owners as (
  (select owner from :"schema".runs
    where wake_at is not null and owner >= coalesce($2::text, (select owner from :"schema".turns order by turn desc limit 1), '')
    order by owner limit 1)
  union all
  select (select r.owner from :"schema".runs r where r.wake_at is not null and r.owner > o.owner order by r.owner limit 1)
  from owners o where o.owner is not null
)
select o.owner, h.wake_at, coalesce((select t.turn from :"schema".turns t where t.owner = o.owner), 0)
from owners o cross join lateral (
  select r.wake_at from :"schema".runs r where r.owner = o.owner and r.wake_at is not null order by r.wake_at, r.id limit 1
) h
where h.wake_at <= $1::timestamptz
limit $3::bigint
