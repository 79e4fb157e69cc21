-- The row that ends with the last event. 1 run number
select seq, body from belay_events where run = ?1 order by seq desc limit 1
