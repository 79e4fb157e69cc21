-- The last event's sequence. 1 run number
select max(seq) from belay_events where run = ?1
