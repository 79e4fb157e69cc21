-- 1 graph number
delete from belay_graphs where no = ?1
