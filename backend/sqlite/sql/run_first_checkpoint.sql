-- The checkpoint id beside a run's first checkpoint event. 1 run number
select checkpoint_id from belay_events where run = ?1 and checkpoint_id is not null order by seq limit 1
