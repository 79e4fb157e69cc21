-- The next owner, bytewise, with a run that has a wake. 1 owner before it
select owner from belay_runs where wake_at is not null and owner > ?1 order by owner limit 1
