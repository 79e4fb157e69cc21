-- The owner of each claim.
select owner from belay_runs indexed by belay_runs_claimed where claimed_at is not null
