-- One at a time among the claims that count what owners hold. 1 key of the lock
select pg_advisory_xact_lock($1::bigint)
