-- How many claims each owner holds.
select owner, count(*) from belay_runs where claimed_at is not null group by owner
