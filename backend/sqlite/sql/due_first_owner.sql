-- The first owner, bytewise, with a run that has a wake.
select owner from belay_runs where wake_at is not null order by owner limit 1
