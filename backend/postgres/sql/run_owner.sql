-- 1 id
select owner from :"schema".runs where id = $1::text
