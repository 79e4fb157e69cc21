-- 1 run number, 2 sequence
select body, digest from belay_events where run = ?1 and seq = ?2
