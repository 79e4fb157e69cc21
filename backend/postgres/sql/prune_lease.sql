-- 1 key of the lock
select pg_try_advisory_xact_lock($1::bigint)
