-- The row that holds an event, if any does. 1 run number, 2 sequence
select seq, body from belay_events where run = ?1 and seq >= ?2 order by seq limit 1
