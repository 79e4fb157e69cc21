-- 1 id, 2 owner (null: any)
select owner, wake_at, claimed_at, claim_attempts, claim_abandons, poisoned_at, poison_reason, checkpoint_type, checkpoint_id, checkpoint_seq, document
from :"schema".runs where id = $1::text and ($2::text is null or owner = $2::text)
