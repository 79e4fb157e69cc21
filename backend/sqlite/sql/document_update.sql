-- 1 run number, 2 body
update belay_documents set body = ?2 where run = ?1
