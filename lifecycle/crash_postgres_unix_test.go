//go:build unix

package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/internal/pgtest"
)

func init() {
	crashStores["postgres"] = func(ctx context.Context, where, process string) (crashStore, error) {
		schema, dsn, _ := strings.Cut(where, " ")
		return postgres.Open(ctx, dsn, postgres.Options{Schema: schema, NewToken: processToken(process)})
	}
}

// postgresHistory records every change of a run, in a schema of its own, and of each claim whether it could have had a run of
// each class: before it looks for itself, a trigger takes the lock of the first that nobody else has locked, among those that the
// claim's own snapshot shows to be due.
const postgresHistory = `
create schema $history;
create table $history.history (n bigserial, at bigint, run text, owner text, status text, seq bigint, kind text, checkpoint text,
  token text, claimed bigint, wake bigint, attempts integer, abandons integer, poisoned bigint, reason text);
create function $history.micros(at timestamptz) returns bigint language sql as 'select coalesce((extract(epoch from at) * 1000000)::bigint, 0)';
create function $history.note() returns trigger language plpgsql as $$ begin
  insert into $history.history (at, run, owner, status, seq, kind, checkpoint, token, claimed, wake, attempts, abandons, poisoned, reason)
  values ($history.micros(clock_timestamp()), new.id, new.owner, new.status, new.checkpoint_seq, new.checkpoint_type, new.checkpoint_id,
    coalesce(new.claim_token, ''), $history.micros(new.claimed_at), $history.micros(new.wake_at), new.claim_attempts, new.claim_abandons,
    $history.micros(new.poisoned_at), coalesce(new.poison_reason, ''));
  return null;
end $$;
create table $history.claims (ready integer, expired integer);
create function $history.shows(shot pg_snapshot, x xid) returns boolean language sql as $$
  select pg_visible_in_snapshot((latest - ((latest - x::text::bigint) & 4294967295))::text::xid8, shot)
  from (select pg_snapshot_xmax(shot)::text::bigint + 2147483647 as latest) l $$;
create function $history.note_claim(shot pg_snapshot) returns void language plpgsql as $$ declare ready text; expired text; begin
  select id into ready from $schema.runs where wake_at <= now() and $history.shows(shot, xmin)
    order by wake_at, id limit 1 for no key update skip locked;
  select id into expired from $schema.runs where claimed_at < now() - interval '$ttl' and $history.shows(shot, xmin)
    order by claimed_at, id limit 1 for no key update skip locked;
  insert into $history.claims values ((ready is not null)::integer, (expired is not null)::integer);
end $$;
-- That it is stable makes it see the claim's snapshot.
create function $history.before() returns trigger language plpgsql stable as $$ begin
  if current_query() like '%max_claim_attempts_exceeded%' then
    perform $history.note_claim(pg_current_snapshot());
  end if;
  return null;
end $$;
create trigger claims before update on $schema.runs for each statement execute function $history.before();
create trigger history after insert or update on $schema.runs for each row execute function $history.note();
`

// Four processes serve one schema.
func TestRunsSurviveProcessesOnPostgresThatAreKilledAndFrozen(t *testing.T) {
	t.Parallel()
	schema, notes := pgtest.Schema(t), pgtest.Schema(t)
	dsn := pgtest.DSN(t)
	store, err := postgres.Open(t.Context(), dsn, postgres.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), strings.NewReplacer("$history", notes, "$schema", schema, "$ttl", fmt.Sprintf("%d us", crashTTL.Microseconds())).Replace(postgresHistory), pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	crash(t, crashing{
		kind: "postgres", where: schema + " " + dsn, processes: 4, runs: crashRuns,
		history: func(t *testing.T) []change {
			return collect(t, conn, "select xmin::text, n, at, run, owner, status, seq, kind, checkpoint, token, claimed, wake, attempts, abandons, poisoned, reason from "+notes+".history",
				func(row pgx.CollectableRow) (c change, err error) {
					err = row.Scan(&c.tx, &c.n, &c.at, &c.run, &c.owner, &c.status, &c.seq, &c.kind, &c.checkpoint, &c.token, &c.claimed, &c.wake, &c.attempts, &c.abandons, &c.poisoned, &c.reason)
					return c, err
				})
		},
		claims: func(t *testing.T) []claiming {
			return collect(t, conn, "select xmin::text, ready, expired from "+notes+".claims", func(row pgx.CollectableRow) (c claiming, err error) {
				err = row.Scan(&c.name, &c.free[0], &c.free[1])
				return c, err
			})
		},
		events: func(t *testing.T) []checkpointEvent {
			return collect(t, conn, "select xmin::text, run_id, checkpoint_id from "+schema+".events where checkpoint_id is not null",
				func(row pgx.CollectableRow) (e checkpointEvent, err error) {
					err = row.Scan(&e.tx, &e.run, &e.checkpoint)
					return e, err
				})
		},
	})
}

func collect[T any](t *testing.T, conn *pgx.Conn, text string, row pgx.RowToFunc[T]) []T {
	t.Helper()
	rows, err := conn.Query(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, row)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
