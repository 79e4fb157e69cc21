-- 1 id, 2 owner (null: any)
select r.owner, e.seq, e.body
from :"schema".runs r left join lateral (
  select seq, body from :"schema".events where run_id = r.id order by seq desc limit 1
) e on true
where r.id = $1::text and ($2::text is null or r.owner = $2::text)
