-- The oldest events of a run. 1 run number, 2 limit
delete from belay_events where rowid in (select rowid from belay_events where run = ?1 order by seq limit ?2)
