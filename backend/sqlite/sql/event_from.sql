-- The rows that events from a sequence on are in. 1 run number, 2 sequence
select seq, body, digest from belay_events where run = ?1 and seq >= ?2 order by seq
