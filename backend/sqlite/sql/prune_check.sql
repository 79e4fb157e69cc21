-- Whether a run is still there and still to go: numbers are used again. 1 run number, 2 run id, 3 finished before
select 1 from belay_runs where no = ?1 and id = ?2 and finished_at < ?3
