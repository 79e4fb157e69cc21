-- 1 run number, 2 sequence
select body from belay_events where run = ?1 and seq = ?2
