-- 1 id, 2 owner (null: any), 3 sequence
select r.owner, e.body from :"schema".runs r join :"schema".events e on e.run_id = r.id
where r.id = $1::text and ($2::text is null or r.owner = $2::text) and e.seq = $3::bigint
