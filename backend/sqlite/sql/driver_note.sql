-- 1 run id, 2 host, 3 process id, 4 now
insert into belay_drivers (run, host, pid, noted_at) select no, ?2, ?3, ?4 from belay_runs where id = ?1
on conflict (run) do update set host = excluded.host, pid = excluded.pid, noted_at = excluded.noted_at
