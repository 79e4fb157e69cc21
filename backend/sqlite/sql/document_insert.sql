-- 1 run number, 2 body
insert into belay_documents (run, body) values (?1, ?2)
