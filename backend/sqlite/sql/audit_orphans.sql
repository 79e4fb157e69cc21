-- Rows of runs that are not there.
select 'document', run, 1 from belay_documents d where not exists (select 1 from belay_runs r where r.no = d.run)
union all
select 'events', run, count(*) from belay_events e where not exists (select 1 from belay_runs r where r.no = e.run) group by run
union all
select 'driver', run, 1 from belay_drivers d where not exists (select 1 from belay_runs r where r.no = d.run)
