-- Runs whose id lies in a range. 1 first id, 2 an id behind the last, 3 owner or null, 4 limit
select id from belay_runs where id >= ?1 and id < ?2 and (?3 is null or owner = ?3) order by id limit ?4
