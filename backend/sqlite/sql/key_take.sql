-- 1 owner, 2 graph id, 3 key, 4 run number, 5 held until
insert into belay_start_keys (owner, graph_id, start_key, run, held_until) values (?1, ?2, ?3, ?4, ?5)
on conflict (owner, graph_id, start_key) do update set run = excluded.run, held_until = excluded.held_until
