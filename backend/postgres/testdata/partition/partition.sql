-- What partitions of the runs would cost and gain: claims, commits, lists and prunes of one table, of 16 partitions by
-- hash of the id, and of 13 partitions by month of the start. For an empty database that may be dropped:
--   createdb partition && psql -X -q -d partition -v runs=2000000 -f partition.sql
-- It prints a line for each kind and step. A statement is prepared once, as a store prepares it.
\set ON_ERROR_STOP on
\if :{?runs}
\else
\set runs 2000000
\endif
set client_min_messages = notice;
set plan_cache_mode = force_generic_plan;
set jit = off;
set synchronous_commit = on;

create function columns_of_runs() returns text language sql as $$ select
  'id text collate "C" not null, owner text collate "C" not null, graph_id text collate "C" not null,
  graph_hash text collate "C" not null, status text collate "C" not null, started_at timestamptz not null,
  updated_at timestamptz not null, finished_at timestamptz, wake_at timestamptz, claim_token text collate "C",
  claimed_at timestamptz, claim_attempts integer not null default 0, claim_abandons integer not null default 0,
  poisoned_at timestamptz, poison_reason text collate "C", checkpoint_seq bigint not null,
  checkpoint_type text collate "C" not null, checkpoint_id text collate "C" not null, document bytea not null' $$;

create procedure make(kind text) language plpgsql as $$
begin
  execute format('create schema %I', kind);
  execute format('set search_path = %I, public', kind);
  case kind
  when 'one' then
    execute 'create table runs (' || columns_of_runs() || ', primary key (id)) with (fillfactor = 70)';
  when 'hash' then
    execute 'create table runs (' || columns_of_runs() || ', primary key (id)) partition by hash (id)';
    for n in 0..15 loop
      execute format('create table runs_%s partition of runs for values with (modulus 16, remainder %s) with (fillfactor = 70)', n, n);
    end loop;
  when 'range' then -- ids are unique in a partition only
    execute 'create table runs (' || columns_of_runs() || ', primary key (id, started_at)) partition by range (started_at)';
    for n in 0..12 loop
      execute format('create table runs_%s partition of runs for values from (%L) to (%L) with (fillfactor = 70)', n,
        '2030-01-01Z'::timestamptz + n * interval '30 days', '2030-01-01Z'::timestamptz + (n + 1) * interval '30 days');
    end loop;
  end case;
  create index runs_ready on runs (wake_at, id) where wake_at is not null;
  create index runs_owner_ready on runs (owner, wake_at, id) where wake_at is not null;
  create index runs_claimed on runs (claimed_at, id) where claimed_at is not null;
  create index runs_finished on runs (finished_at, id) where finished_at is not null;
  create index runs_listed on runs (status, started_at, id, owner) where status <> 'done';
  create table starts (started_at timestamptz not null, id text collate "C" not null, primary key (started_at, id));
end $$;

-- Finished runs over twelve months, and 30,000 of the thirteenth that are due.
create procedure fill(runs bigint) language plpgsql as $$
begin
  insert into runs (id, owner, graph_id, graph_hash, status, started_at, updated_at, finished_at, wake_at, checkpoint_seq,
    checkpoint_type, checkpoint_id, document)
  select case when due then 'due-' else 'run-' end || lpad(n::text, 22, '0'), '', 'order', repeat('h', 64),
    case when due then 'running' when n % 1000 = 0 then 'failed' else 'done' end, at, at,
    case when not due then at + interval '1 minute' end, case when due then at end, 1 + (not due)::integer,
    case when due then 'run_initialized' else 'run_completed' end, lpad(n::text, 26, '0'), convert_to(repeat(md5(n::text), 8), 'UTF8')
  from (
    select n, n > runs as due,
      '2030-01-01Z'::timestamptz + case when n > runs then interval '361 days' + (n - runs) * interval '1 second' else n * (interval '360 days' / runs) end as at
    from generate_series(1, runs + 30000) n) g;
  insert into starts select started_at, id from runs order by started_at, id;
end $$;

create procedure told(kind text, step text, n bigint, since timestamptz) language plpgsql as $$
declare took float := extract(epoch from clock_timestamp() - since);
begin
  raise notice '% % % in % s: %/s', rpad(kind, 6), rpad(step, 34), n, round(took::numeric, 2), round((n / took)::numeric);
end $$;

create procedure claims(kind text, rounds int) language plpgsql as $$
declare since timestamptz := clock_timestamp();
begin
  for n in 1..rounds loop
    with ready as materialized (
      select id from runs where wake_at <= '2032-01-01Z' order by wake_at, id limit 50 for no key update skip locked
    )
    update runs r set wake_at = null, claim_token = 'token', claimed_at = '2032-01-01Z', claim_attempts = r.claim_attempts + 1
    from ready t where r.id = t.id;
    commit;
  end loop;
  call told(kind, 'claims of 50', rounds * 50, since);
end $$;

create procedure commits(kind text, runs bigint, of_many int, rounds int, first int, partition boolean) language plpgsql as $$
declare since timestamptz := clock_timestamp(); ids text[]; started timestamptz[];
begin
  for n in 0..rounds - 1 loop
    select array_agg('due-' || lpad((runs + first + n * of_many + k)::text, 22, '0')),
      array_agg('2030-01-01Z'::timestamptz + interval '361 days' + (first + n * of_many + k) * interval '1 second')
    into ids, started from generate_series(1, of_many) k;
    if partition then
      update runs r set status = 'done', finished_at = '2032-01-01Z', checkpoint_seq = r.checkpoint_seq + 1,
        checkpoint_type = 'run_completed', claim_token = null, claimed_at = null, claim_attempts = 0, document = r.document || 'x'
      where r.id = ids[1] and r.started_at = started[1] and r.checkpoint_seq = 1 and r.claim_token = 'token';
    elsif of_many = 1 then
      update runs r set status = 'done', finished_at = '2032-01-01Z', checkpoint_seq = r.checkpoint_seq + 1,
        checkpoint_type = 'run_completed', claim_token = null, claimed_at = null, claim_attempts = 0, document = r.document || 'x'
      where r.id = ids[1] and r.checkpoint_seq = 1 and r.claim_token = 'token';
    else
      update runs r set status = 'done', finished_at = '2032-01-01Z', checkpoint_seq = r.checkpoint_seq + 1,
        checkpoint_type = 'run_completed', claim_token = null, claimed_at = null, claim_attempts = 0, document = r.document || 'x'
      from unnest(ids) g(id) where r.id = g.id and r.checkpoint_seq = 1 and r.claim_token = 'token';
    end if;
    commit;
  end loop;
  call told(kind, format('commits, %s a statement%s', of_many, case when partition then ', with the start' else '' end), rounds * of_many, since);
end $$;

create procedure lists(kind text, rounds int) language plpgsql as $$
declare since timestamptz := clock_timestamp(); n bigint;
begin
  for k in 1..rounds loop
    select count(*) into n from (
      select r.id, r.status from starts s join runs r on r.id = s.id
      where (s.started_at, s.id) < ('2030-11-01Z'::timestamptz - k * interval '1 hour', '') order by s.started_at desc, s.id desc limit 50) page;
  end loop;
  call told(kind, 'lists of 50, the newest', rounds, since);
  since := clock_timestamp();
  for k in 1..rounds loop
    select count(*) into n from (
      select id from runs where status = 'failed' and status <> 'done' and (started_at, id) < ('2030-11-01Z'::timestamptz - k * interval '1 hour', '')
      order by started_at desc, id desc limit 50) page;
  end loop;
  call told(kind, 'lists of 50, failed', rounds, since);
end $$;

create procedure prunes(kind text, rounds int) language plpgsql as $$
declare since timestamptz := clock_timestamp(); n bigint; month text;
begin
  for k in 1..rounds loop
    with gone as materialized (
      select id from runs where finished_at < '2030-06-01Z' order by finished_at, id limit 50 for update skip locked
    )
    delete from runs where id = any (array (select id from gone));
    commit;
  end loop;
  call told(kind, 'prunes of 50', rounds * 50, since);
  if kind = 'range' then
    select count(*) into n from runs_1;
    since := clock_timestamp();
    drop table runs_1;
    commit;
    call told(kind, 'a month dropped', n, since);
  end if;
end $$;

create procedure measure(kind text, runs bigint) language plpgsql as $$
begin
  execute format('set search_path = %I, public', kind);
  call claims(kind, 600);
  call commits(kind, runs, 1, 3000, 0, false);
  call commits(kind, runs, 50, 200, 3000, false);
  call commits(kind, runs, 1, 3000, 13000, true);
  call lists(kind, 300);
  call prunes(kind, 200);
end $$;
call make('one');
call fill(:runs);
call make('hash');
call fill(:runs);
call make('range');
call fill(:runs);
vacuum (analyze) one.runs, one.starts, hash.runs, hash.starts, range.runs, range.starts;
checkpoint;
discard plans;
call measure('one', :runs);
discard plans;
call measure('hash', :runs);
discard plans;
call measure('range', :runs);
