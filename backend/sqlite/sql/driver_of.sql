-- 1 run id
select d.host, d.pid, d.noted_at from belay_drivers d join belay_runs r on r.no = d.run where r.id = ?1
