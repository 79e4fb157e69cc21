-- The row that holds an event, if there is one. 1 id, 2 owner (null: any), 3 sequence
select r.owner, e.seq, e.body
from :"schema".runs r left join lateral (
  select seq, body from :"schema".events where run_id = r.id and seq >= $3::bigint order by seq limit 1
) e on true
where r.id = $1::text and ($2::text is null or r.owner = $2::text)
