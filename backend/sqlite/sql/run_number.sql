-- 1 run id, 2 owner or null
select no, owner from belay_runs where id = ?1 and (?2 is null or owner = ?2)
