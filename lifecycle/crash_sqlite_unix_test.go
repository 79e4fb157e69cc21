//go:build unix

package lifecycle_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/claim"
)

func init() {
	crashStores["sqlite"] = func(ctx context.Context, where, process string) (crashStore, error) {
		return sqlite.Open(ctx, where, sqlite.Options{SharedDirectory: true, NewToken: processToken(process)})
	}
}

// processToken makes tokens that tell whose they are.
func processToken(process string) func() claim.Token {
	return func() claim.Token { return claim.Token(process + "/" + ulid.Make().String()) }
}

// sqliteHistory records every change of a run.
const sqliteHistory = `
create table history (n integer primary key autoincrement, at integer, run, owner, status, seq, kind, checkpoint, token, claimed, wake, attempts, abandons, poisoned, reason);
create trigger history_insert after insert on belay_runs begin ` + sqliteChange + ` end;
create trigger history_update after update on belay_runs begin ` + sqliteChange + ` end;
`

const sqliteChange = `
insert into history (at, run, owner, status, seq, kind, checkpoint, token, claimed, wake, attempts, abandons, poisoned, reason)
values (cast(unixepoch('subsec') * 1000 as integer) * 1000, new.id, new.owner, new.status, new.checkpoint_seq, new.checkpoint_type, new.checkpoint_id,
  ifnull(new.claim_token, ''), ifnull(new.claimed_at, 0), ifnull(new.wake_at, 0), new.claim_attempts, new.claim_abandons,
  ifnull(new.poisoned_at, 0), ifnull(new.poison_reason, ''));
`

// Two processes serve one file.
func TestRunsSurviveProcessesOnOneFileThatAreKilledAndFrozen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{SharedDirectory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), sqliteHistory); err != nil {
		t.Fatal(err)
	}
	query := func(t *testing.T, text string, each func(*sql.Rows) error) {
		t.Helper()
		rows, err := db.QueryContext(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			if err := each(rows); err != nil {
				t.Fatal(err)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	crash(t, crashing{
		kind: "sqlite", where: path, processes: 2, runs: crashRuns,
		history: func(t *testing.T) (all []change) {
			query(t, "select n, at, run, owner, status, seq, kind, checkpoint, token, claimed, wake, attempts, abandons, poisoned, reason from history",
				func(rows *sql.Rows) error {
					var c change
					err := rows.Scan(&c.n, &c.at, &c.run, &c.owner, &c.status, &c.seq, &c.kind, &c.checkpoint, &c.token, &c.claimed, &c.wake, &c.attempts, &c.abandons, &c.poisoned, &c.reason)
					all = append(all, c)
					return err
				})
			return all
		},
		events: func(t *testing.T) (all []checkpointEvent) {
			query(t, "select r.id, e.checkpoint_id from belay_events e join belay_runs r on r.no = e.run where e.checkpoint_id is not null",
				func(rows *sql.Rows) error {
					var e checkpointEvent
					err := rows.Scan(&e.run, &e.checkpoint)
					all = append(all, e)
					return err
				})
			return all
		},
	})
}
