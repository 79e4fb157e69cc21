-- Expired runs, locked: the oldest of each owner first when 5 says so. 1 now, 2 ttl in microseconds, 3 limit of each owner, 4 limit,
-- 6 and 7 graph ids and hashes (null: any; '': any hash)
select r.id, r.owner, 2 as class, r.claimed_at, r.claim_attempts
from (
  select e.id, e.claimed_at, row_number() over (partition by case when $5::boolean then e.owner end order by e.claimed_at, e.id) as nth
  from :"schema".runs e
  where e.claimed_at < $1::timestamptz - $2::bigint * interval '1 microsecond'
    and ($6::text[] is null or exists (select from unnest($6::text[], $7::text[]) f(id, hash) where f.id = e.graph_id and f.hash in ('', e.graph_hash)))
) d join :"schema".runs r on r.id = d.id
where d.nth <= $3::bigint and r.claimed_at < $1::timestamptz - $2::bigint * interval '1 microsecond'
order by d.nth, d.claimed_at, d.id limit $4::bigint for no key update of r skip locked
