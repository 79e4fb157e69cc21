-- 1 id, 2 owner (null: any), 3 after this sequence, 4 limit
select r.owner, b.oldest, b.latest, e.seq, e.body
from :"schema".runs r
cross join lateral (select min(seq) as oldest, max(seq) as latest from :"schema".events where run_id = r.id) b
left join lateral (
  select seq, body from :"schema".events where run_id = r.id and seq > $3::bigint order by seq limit $4::bigint
) e on true
where r.id = $1::text and ($2::text is null or r.owner = $2::text)
order by e.seq
