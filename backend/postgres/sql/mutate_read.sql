-- The run, and whether a checkpoint id is stored already. 1 id, 2 owner (null: any), 3 checkpoint id
select r.owner, r.checkpoint_seq, r.document, r.checkpoint_id = $3::text
  or (select true from :"schema".events e where e.run_id = r.id and e.checkpoint_id = $3::text limit 1) is true
from :"schema".runs r where r.id = $1::text and ($2::text is null or r.owner = $2::text)
