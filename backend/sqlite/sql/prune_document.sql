-- 1 run number
delete from belay_documents where run = ?1
