-- Expired runs, locked: the oldest of each owner first when 4 says so. 1 now, 2 ttl in microseconds, 3 limit,
-- 5 and 6 graph ids and hashes (null: any; '': any hash), 7 with turns
select r.id, r.owner, 2 as class, r.claimed_at,
  case when $7::boolean then coalesce((select t.turn from :"schema".turns t where t.owner = r.owner), 0) else 0 end
from (
  select e.id, e.claimed_at, row_number() over (partition by case when $4::boolean then e.owner end order by e.claimed_at, e.id) as nth
  from :"schema".runs e
  where e.claimed_at < $1::timestamptz - $2::bigint * interval '1 microsecond'
    and ($5::text[] is null or exists (select from unnest($5::text[], $6::text[]) f(id, hash) where f.id = e.graph_id and f.hash in ('', e.graph_hash)))
) d join :"schema".runs r on r.id = d.id
where r.claimed_at < $1::timestamptz - $2::bigint * interval '1 microsecond'
order by d.nth, d.claimed_at, d.id limit $3::bigint for no key update of r skip locked
