-- The same version again changes nothing. 1 owner, 2 graph id, 3 graph hash, 4 published (null: now), 5 body
with saved as (
  insert into :"schema".graphs (owner, graph_id, graph_hash, published_at, body)
  values ($1::text, $2::text, $3::text, coalesce($4::timestamptz, clock_timestamp()), $5::bytea)
  on conflict (owner, graph_id, graph_hash) do nothing
  returning 1
)
select exists (select from saved), (select body from :"schema".graphs where owner = $1::text and graph_id = $2::text and graph_hash = $3::text)
