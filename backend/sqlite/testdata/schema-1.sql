CREATE TABLE belay_documents (
  run integer primary key references belay_runs (no),
  body blob not null
) strict;
CREATE TABLE belay_drivers (
  run integer primary key references belay_runs (no),
  host text not null,
  pid integer not null,
  noted_at integer not null
) strict;
CREATE TABLE belay_events (
  run integer not null references belay_runs (no),
  seq integer not null,
  checkpoint_id text,
  body blob not null,
  constraint seq check (seq >= 1)
) strict;
CREATE TABLE belay_graphs (
  no integer primary key,
  owner text not null,
  graph_id text not null,
  graph_hash text not null,
  published_at integer not null,
  body blob not null,
  constraint graph_ids check (length(graph_id) > 0 and length(graph_hash) > 0)
) strict;
CREATE TABLE belay_migrations (
  number integer primary key,
  name text not null,
  sha256 text not null,
  applied_at integer not null
) strict;
CREATE TABLE belay_runs (
  no integer primary key,
  id text not null,
  owner text not null,
  graph_id text not null,
  graph_hash text not null,
  status text not null,
  started_at integer not null,
  updated_at integer not null,
  finished_at integer,
  wake_at integer,
  claim_token text,
  claimed_at integer,
  claim_attempts integer not null default 0,
  claim_abandons integer not null default 0,
  poisoned_at integer,
  poison_reason text,
  checkpoint_seq integer not null,
  checkpoint_type text not null,
  checkpoint_id text not null,
  constraint run_id check (octet_length(id) between 1 and 255),
  constraint status check (status in ('running', 'waiting', 'done', 'failed', 'cancelled')),
  constraint checkpoint_type check (checkpoint_type in (
    'run_initialized', 'step_committed', 'retry_scheduled', 'snoozed', 'interrupt_requested', 'interrupt_resolved',
    'graph_migrated', 'run_completed', 'run_failed', 'run_cancelled')),
  constraint checkpoint_id check (length(checkpoint_id) > 0),
  constraint counters check (claim_attempts >= 0 and claim_abandons >= 0 and checkpoint_seq >= 1),
  constraint claim_pair check ((claim_token is null) = (claimed_at is null) and claim_token is not ''),
  constraint poison_pair check ((poisoned_at is null) = (poison_reason is null)),
  constraint shape check (
    (wake_at is not null) + (claim_token is not null) + (poisoned_at is not null) = (status = 'running')),
  constraint finished check ((finished_at is not null) = (status in ('done', 'failed', 'cancelled'))),
  constraint graph foreign key (owner, graph_id, graph_hash) references belay_graphs (owner, graph_id, graph_hash)
) strict;
CREATE TABLE belay_start_keys (
  owner text not null,
  graph_id text not null,
  start_key text not null,
  run integer not null references belay_runs (no),
  held_until integer not null,
  primary key (owner, graph_id, start_key)
) strict, without rowid;
CREATE UNIQUE INDEX belay_events_key on belay_events (run, seq);
CREATE UNIQUE INDEX belay_graphs_key on belay_graphs (owner, graph_id, graph_hash);
CREATE INDEX belay_graphs_newest on belay_graphs (owner, graph_id, published_at desc, graph_hash desc);
CREATE INDEX belay_runs_claimed on belay_runs (claimed_at, id) where claimed_at is not null;
CREATE INDEX belay_runs_finished on belay_runs (finished_at, id) where finished_at is not null;
CREATE INDEX belay_runs_graph on belay_runs (graph_hash);
CREATE UNIQUE INDEX belay_runs_id on belay_runs (id);
CREATE INDEX belay_runs_newest on belay_runs (started_at desc, id desc);
CREATE INDEX belay_runs_owner_newest on belay_runs (owner, started_at desc, id desc);
CREATE INDEX belay_runs_owner_ready on belay_runs (owner, wake_at, id) where wake_at is not null;
CREATE INDEX belay_runs_ready on belay_runs (wake_at, id) where wake_at is not null;
CREATE INDEX belay_start_keys_run on belay_start_keys (run);
