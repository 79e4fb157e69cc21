-- 1 run number
select (select min(seq) from belay_events where run = ?1), (select max(seq) from belay_events where run = ?1)
