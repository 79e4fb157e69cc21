-- Events as they are stored, in their order. 1 run id, 2 sequences
select seq, body, digest from :"schema".events where run_id = $1::text and seq = any ($2::bigint[]) order by seq
