-- The oldest ready runs of owners, locked. 1 now, 2 owners, 3 how many of each, 4 and 5 graph ids and hashes (null: any; '': any hash),
-- 6 their turns
select r.* from unnest($2::text[], $3::bigint[], $6::bigint[]) o(owner, most, turn) cross join lateral (
  select r.id, r.owner, 1 as class, r.wake_at, o.turn from :"schema".runs r
  where r.owner = o.owner and r.wake_at <= $1::timestamptz
    and ($4::text[] is null or exists (select from unnest($4::text[], $5::text[]) f(id, hash) where f.id = r.graph_id and f.hash in ('', r.graph_hash)))
  order by r.wake_at, r.id limit o.most for no key update skip locked
) r
