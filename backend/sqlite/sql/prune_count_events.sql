-- The rows of events of a run. 1 run number, 2 length of a head
select seq, substr(body, 1, ?2) from belay_events where run = ?1
