-- Every row of events of a run. 1 run number
select seq, checkpoint_id, body from belay_events where run = ?1 order by seq
