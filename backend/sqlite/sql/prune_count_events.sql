-- 1 run number
select count(*) from belay_events where run = ?1
