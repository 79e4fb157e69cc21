-- One row of events. 1 run number, 2 sequence of the last, 3 checkpoint id, 4 body, 5 digest
insert into belay_events (run, seq, checkpoint_id, body, digest) values (?1, ?2, ?3, ?4, ?5)
