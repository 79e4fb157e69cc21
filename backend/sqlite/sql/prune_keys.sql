-- 1 run number
delete from belay_start_keys where run = ?1
