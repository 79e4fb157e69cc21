-- The first row, as far as it tells where it begins, and the last event. 1 run number, 2 length of a head
select seq, substr(body, 1, ?2), (select max(seq) from belay_events where run = ?1)
from belay_events where run = ?1 order by seq limit 1
