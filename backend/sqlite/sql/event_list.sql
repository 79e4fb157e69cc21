-- The rows with the events after a sequence, one at least in each. 1 run number, 2 after, 3 limit
select seq, body from belay_events where run = ?1 and seq > ?2 order by seq limit ?3
