-- 1 run number
delete from belay_drivers where run = ?1
