-- How many claims each owner holds
select owner, count(*) from :"schema".runs where claimed_at is not null group by owner
