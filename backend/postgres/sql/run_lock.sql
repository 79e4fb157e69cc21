-- Locks a run, and has the server end the session that then does nothing for too long. 1 id, 2 owner (null: any),
-- 3 milliseconds
select set_config('idle_in_transaction_session_timeout', $3::text, true)
from :"schema".runs where id = $1::text and ($2::text is null or owner = $2::text) for no key update
