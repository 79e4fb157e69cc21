-- Rows of events, and the oldest one's sequence and head. 1 id, 2 owner (null: any), 3 after this sequence, 4 limit
select r.owner, o.seq, o.head, b.latest, e.seq, e.body
from :"schema".runs r
cross join lateral (select max(seq) as latest from :"schema".events where run_id = r.id) b
left join lateral (
  select seq, substring(body from 1 for 22) as head from :"schema".events where run_id = r.id order by seq asc limit 1
) o on true
left join lateral (
  select seq, body from :"schema".events where run_id = r.id and seq > $3::bigint order by seq limit $4::bigint
) e on true
where r.id = $1::text and ($2::text is null or r.owner = $2::text)
order by e.seq
