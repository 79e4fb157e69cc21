-- The instant of a claim. 1 now (null: the clock's), 2 not before (null: none)
select coalesce($1::timestamptz, greatest(clock_timestamp(), $2::timestamptz))
