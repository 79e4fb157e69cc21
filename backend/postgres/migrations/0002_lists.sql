-- Runs by their status, all but those that are done, which are most: a list of these reads no others. On a large
-- table it may be made beforehand, with "create index concurrently", so that nobody waits for it.
create index if not exists runs_listed on :"schema".runs (status, started_at, id, owner) where status <> 'done';

-- When an owner was last served under interleaving, as the number of that outcome.
create table :"schema".turns (
  owner text collate "C" not null,
  turn bigint not null,
  constraint turns_key primary key (owner)
);
create index turns_last on :"schema".turns (turn);
