-- An owner is a tenant's id, or '' for runs of no tenant. Ids are compared bytewise.

create table :"schema".graphs (
  owner text collate "C" not null,
  graph_id text collate "C" not null,
  graph_hash text collate "C" not null,
  published_at timestamptz not null,
  body bytea not null,
  constraint graphs_key primary key (owner, graph_id, graph_hash),
  constraint graph_ids check (graph_id <> '' and graph_hash <> '')
);
create index graphs_newest on :"schema".graphs (owner, graph_id, published_at, graph_hash);

-- What claims and commits rewrite, with no index that they need not maintain.
create table :"schema".runs (
  id text collate "C" not null,
  owner text collate "C" not null,
  graph_id text collate "C" not null,
  graph_hash text collate "C" not null,
  status text collate "C" not null,
  started_at timestamptz not null,
  updated_at timestamptz not null,
  finished_at timestamptz,
  wake_at timestamptz,
  claim_token text collate "C",
  claimed_at timestamptz,
  claim_attempts integer not null default 0,
  claim_abandons integer not null default 0,
  poisoned_at timestamptz,
  poison_reason text collate "C",
  checkpoint_seq bigint not null,
  checkpoint_type text collate "C" not null,
  checkpoint_id text collate "C" not null,
  document bytea not null,
  constraint runs_key primary key (id),
  constraint run_id check (octet_length(id) between 1 and 255),
  constraint status check (status in ('running', 'waiting', 'done', 'failed', 'cancelled')),
  constraint checkpoint_type check (checkpoint_type in (
    'run_initialized', 'step_committed', 'retry_scheduled', 'snoozed', 'interrupt_requested', 'interrupt_resolved',
    'graph_migrated', 'run_completed', 'run_failed', 'run_cancelled')),
  constraint checkpoint_id check (checkpoint_id <> ''),
  constraint counters check (claim_attempts >= 0 and claim_abandons >= 0 and checkpoint_seq >= 1),
  constraint claim_pair check ((claim_token is null) = (claimed_at is null) and claim_token <> ''),
  constraint poison_pair check ((poisoned_at is null) = (poison_reason is null)),
  constraint shape check (num_nonnulls(wake_at, claim_token, poisoned_at) = (status = 'running')::integer),
  constraint finished check ((finished_at is not null) = (status in ('done', 'failed', 'cancelled')))
) with (fillfactor = 70);
create index runs_ready on :"schema".runs (wake_at, id) where wake_at is not null;
create index runs_owner_ready on :"schema".runs (owner, wake_at, id) where wake_at is not null;
create index runs_claimed on :"schema".runs (claimed_at, id) where claimed_at is not null;
create index runs_finished on :"schema".runs (finished_at, id) where finished_at is not null;

-- What does not change about a run, for lists: its indexes are written once a run.
create table :"schema".starts (
  started_at timestamptz not null,
  id text collate "C" not null,
  owner text collate "C" not null,
  graph_id text collate "C" not null,
  graph_hash text collate "C" not null,
  constraint starts_key primary key (started_at, id)
);
create index starts_of_owner on :"schema".starts (owner, started_at, id);
create index starts_of_graph on :"schema".starts (owner, graph_id, graph_hash);

create table :"schema".events (
  run_id text collate "C" not null,
  seq bigint not null,
  checkpoint_id text collate "C",
  body bytea not null,
  constraint events_key primary key (run_id, seq),
  constraint event_seq check (seq >= 1)
);

create table :"schema".start_keys (
  owner text collate "C" not null,
  graph_id text collate "C" not null,
  start_key text collate "C" not null,
  run_id text collate "C" not null,
  held_until timestamptz not null,
  constraint start_keys_key primary key (owner, graph_id, start_key)
);
create index start_keys_of_run on :"schema".start_keys (run_id);
