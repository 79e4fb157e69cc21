-- 1 run id, 2 owner or null
select r.owner, r.checkpoint_seq, d.body from belay_runs r left join belay_documents d on d.run = r.no
where r.id = ?1 and (?2 is null or r.owner = ?2)
