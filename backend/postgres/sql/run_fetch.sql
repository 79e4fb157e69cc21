-- 1 id, 2 owner (null: any)
select owner, checkpoint_seq, document from :"schema".runs where id = $1::text and ($2::text is null or owner = $2::text)
