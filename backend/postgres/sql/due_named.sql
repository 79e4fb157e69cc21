-- Due runs among those named, locked. 1 now, 2 ttl in microseconds, 3 ids, 4 and 5 graph ids and hashes (null: any; '': any hash),
-- 6 with turns
select r.id, r.owner, case when r.wake_at is not null then 1 else 2 end as class, coalesce(r.wake_at, r.claimed_at),
  case when $6::boolean then coalesce((select t.turn from :"schema".turns t where t.owner = r.owner), 0) else 0 end
from :"schema".runs r
where r.id = any ($3::text[])
  and (r.wake_at <= $1::timestamptz or r.claimed_at < $1::timestamptz - $2::bigint * interval '1 microsecond')
  and ($4::text[] is null or exists (select from unnest($4::text[], $5::text[]) f(id, hash) where f.id = r.graph_id and f.hash in ('', r.graph_hash)))
order by r.id for no key update skip locked
