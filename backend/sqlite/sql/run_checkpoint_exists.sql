-- Whether a commit of that id is in a run's history. 1 run number, 2 checkpoint id
select 1 from belay_events where run = ?1 and checkpoint_id = ?2 limit 1
