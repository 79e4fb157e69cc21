-- 1 run number
select body from belay_documents where run = ?1
