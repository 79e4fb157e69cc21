-- 1 run id
select r.no, r.owner, r.checkpoint_seq, r.checkpoint_id, d.body
from belay_runs r left join belay_documents d on d.run = r.no where r.id = ?1
