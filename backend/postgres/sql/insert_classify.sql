-- Why a run was not inserted: who has its id, and its key. 1 id, 2 owner, 3 graph id, 4 key (null: none)
select r.owner, r.checkpoint_seq, r.checkpoint_id, e.checkpoint_id, k.run_id
from (select) one
left join :"schema".runs r on r.id = $1::text
left join lateral (
  select checkpoint_id from :"schema".events where run_id = r.id and checkpoint_id is not null order by seq limit 1
) e on true
left join :"schema".start_keys k on k.owner = $2::text and k.graph_id = $3::text and k.start_key = $4::text
