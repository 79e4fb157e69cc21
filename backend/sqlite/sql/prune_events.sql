-- The oldest rows of events of a run. 1 run number, 2 limit, 3 length of a head
delete from belay_events where rowid in (select rowid from belay_events where run = ?1 order by seq limit ?2)
returning seq, substr(body, 1, ?3)
