-- An owner is served, after everybody else. 1 owner
insert into belay_turns (owner, turn) values (?1, (select coalesce(max(turn), 0) + 1 from belay_turns))
on conflict (owner) do update set turn = excluded.turn
