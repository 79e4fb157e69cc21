-- Ids that begin with a prefix. 1 prefix, 2 owner (null: any), 3 limit
select id from :"schema".runs
where id >= $1::text and starts_with(id, $1::text) and ($2::text is null or owner = $2::text)
order by id limit $3::bigint
