-- Rows that may hold some of a run's events, in their order. 1 run id, 2 the first event's sequence, 3 the last one's
select seq, body, digest from :"schema".events where run_id = $1::text and seq >= $2::bigint and seq <= $3::bigint
union all
(select seq, body, digest from :"schema".events where run_id = $1::text and seq > $3::bigint order by seq limit 1)
order by seq
