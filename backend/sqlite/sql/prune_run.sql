-- 1 run number
delete from belay_runs where no = ?1
