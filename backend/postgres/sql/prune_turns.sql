-- Turns of owners that have no runs left: whoever comes back begins anew, and is first. Those that a claim is writing are left.
-- 1 key of the lock
delete from :"schema".turns t using (
  select u.owner from :"schema".turns u
  where not exists (select from :"schema".starts s where s.owner = u.owner)
  limit 1000 for update skip locked
) unused
where t.owner = unused.owner and (select pg_try_advisory_xact_lock($1::bigint))
