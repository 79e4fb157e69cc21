-- Why a commit changed nothing. 1 run id
select owner, graph_id, graph_hash, started_at, checkpoint_seq, claim_token, checkpoint_id
from belay_runs where id = ?1
