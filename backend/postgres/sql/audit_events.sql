-- Every event of a run. 1 id
select seq, checkpoint_id, body from :"schema".events where run_id = $1::text order by seq
