-- Runs that have not finished, so that a list of them never reads through those that have.
create index belay_runs_live on belay_runs (started_at desc, id desc) where finished_at is null;

-- When an owner was last served under interleaving, as the number of that outcome.
create table belay_turns (
  owner text primary key,
  turn integer not null
) strict, without rowid;
create index belay_turns_last on belay_turns (turn);
