-- What an insert under a taken id needs to know. 1 run id
select no, owner, checkpoint_id, checkpoint_seq from belay_runs where id = ?1
