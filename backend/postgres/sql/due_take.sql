-- Claims runs that are locked, or poisons them. 1 now, 2 maximum of attempts, 3 ids, 4 classes, 5 tokens, 6 with documents
update :"schema".runs r set
  wake_at = null,
  claim_token = case when r.claim_attempts < $2::integer then t.token end,
  claimed_at = case when r.claim_attempts < $2::integer then $1::timestamptz end,
  claim_attempts = r.claim_attempts + (r.claim_attempts < $2::integer)::integer,
  poisoned_at = case when r.claim_attempts >= $2::integer then $1::timestamptz end,
  poison_reason = case when r.claim_attempts >= $2::integer then 'max_claim_attempts_exceeded' end
from unnest($3::text[], $4::bigint[], $5::text[]) t(id, class, token)
where r.id = t.id
returning $1::timestamptz, r.id, r.owner, r.graph_id, r.graph_hash, r.checkpoint_seq, r.claim_token, r.claim_attempts, t.class::integer,
  case when $6::boolean and r.claim_token is not null then r.document end
