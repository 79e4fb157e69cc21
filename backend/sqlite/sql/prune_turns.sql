-- Turns of owners that have no runs left: whoever comes back begins anew, and is first.
delete from belay_turns where not exists (select 1 from belay_runs r where r.owner = belay_turns.owner)
