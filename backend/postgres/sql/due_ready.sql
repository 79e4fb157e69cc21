-- The oldest ready runs, locked. 1 now, 2 limit, 3 and 4 graph ids and hashes (null: any; '': any hash)
select r.id, r.owner, 1 as class, r.wake_at, 0::bigint from :"schema".runs r
where r.wake_at <= $1::timestamptz
  and ($3::text[] is null or exists (select from unnest($3::text[], $4::text[]) f(id, hash) where f.id = r.graph_id and f.hash in ('', r.graph_hash)))
order by r.wake_at, r.id limit $2::bigint for no key update skip locked
