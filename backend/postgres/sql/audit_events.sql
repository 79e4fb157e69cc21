-- Every row of events of some runs, in the order of the runs. 1 ids
select run_id, seq, checkpoint_id, body from :"schema".events where run_id = any ($1::text[]) order by run_id, seq
