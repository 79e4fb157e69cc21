package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/internal/pgtest"
)

// TestTheScriptLeadsWhereMigrateDoes: whoever runs it by hand, or lets Migrate do it, has the golden
// schema, in which nothing is pending any more, and which may be opened.
func TestTheScriptLeadsWhereMigrateDoes(t *testing.T) {
	pool := testPool(t)
	ways := map[string]func(t *testing.T, dsn string, opts Options, pending Pending) error{
		"script": func(t *testing.T, _ string, _ Options, pending Pending) error {
			_, err := pool.Exec(t.Context(), pending.Script, pgx.QueryExecModeSimpleProtocol)
			return err
		},
		"migrate": func(t *testing.T, dsn string, opts Options, pending Pending) error {
			applied, err := Migrate(t.Context(), dsn, opts)
			if !slices.Equal(applied, pending.Migrations) {
				t.Errorf("applied %v, pending were %v", applied, pending.Migrations)
			}
			return err
		},
	}
	for name, apply := range ways {
		for _, exists := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				dsn, opts := pgtest.DSN(t), Options{Schema: pgtest.Schema(t)}
				if exists {
					if _, err := pool.Exec(t.Context(), "create schema "+opts.Schema); err != nil {
						t.Fatal(err)
					}
				}
				pending, err := PendingMigrations(t.Context(), dsn, opts)
				all, _ := loadMigrations()
				if err != nil || !slices.Equal(pending.Migrations, namesOf(all)) {
					t.Fatalf("pending is %v, %v", pending.Migrations, err)
				}
				if again, err := PendingMigrations(t.Context(), dsn, opts); err != nil || again.Script != pending.Script {
					t.Errorf("looking changed something: %v", err)
				}
				if err := apply(t, dsn, opts, pending); err != nil {
					t.Fatal(err)
				}
				if pending, err := PendingMigrations(t.Context(), dsn, opts); err != nil || len(pending.Migrations) > 0 || pending.Script != "" {
					t.Errorf("pending is %v, %v", pending, err)
				}
				opts.VerifyOnly = true
				s := testStore(t, pool, opts)
				if got, err := s.describe(t.Context(), s.pool, nil); err != nil || got != golden {
					t.Errorf("it differs at %q, %v", difference(golden, got), err)
				}
			})
		}
	}
}

// TestALookAtASchemaChangesNothing: neither PendingMigrations nor a store that is only to verify.
func TestALookAtASchemaChangesNothing(t *testing.T) {
	pool, opts := testPool(t), Options{Schema: pgtest.Schema(t), VerifyOnly: true}
	if _, err := PendingMigrations(t.Context(), pgtest.DSN(t), opts); err != nil {
		t.Fatal(err)
	}
	refusal, ok := errors.AsType[*SetupError](func() error { _, err := New(pool, opts); return err }())
	if !ok || refusal.Problem != ProblemOutdated || !strings.Contains(refusal.Error(), "nothing of belay is in it yet") {
		t.Errorf("it was answered %v", refusal)
	}
	exists := true
	if err := pool.QueryRow(context.Background(), "select to_regnamespace($1) is not null", opts.Schema).Scan(&exists); err != nil || exists {
		t.Errorf("the schema is there: %v, %v", exists, err)
	}
}

// TestAnIndexMadeBeforehand: the index that a migration makes may be made before it, without keeping writers
// waiting, and leads to the same schema. One that is not valid, or is another one, is refused and nothing changes.
func TestAnIndexMadeBeforehand(t *testing.T) {
	pool := testPool(t)
	all, err := loadMigrations()
	if err != nil {
		t.Fatal(err)
	}
	text := all[1].text
	create := text[strings.Index(text, "create index if not exists"):]
	create = create[:strings.Index(create, ";")]
	concurrently := strings.Replace(create, "create index", "create index concurrently", 1)
	const row = `insert into :"schema".runs (id, owner, graph_id, graph_hash, status, started_at, updated_at, checkpoint_seq, checkpoint_type, checkpoint_id, document)
select n::text, '', 'g', 'h', 'waiting', now(), now(), 1, 'run_initialized', n::text, '' from generate_series(1, 2) n`
	for name, c := range map[string]struct {
		before []string // statements, the last of which may fail
		fails  bool
		says   string // of the refusal; none: it is migrated
		mend   string // after which it is migrated
	}{
		"as the migration says": {before: []string{concurrently}},
		"whose building failed": {
			before: []string{row, strings.Replace(concurrently, "where status", "where length(id) / (length(id) - 1) > 0 and status", 1)}, fails: true,
			says: "not valid", mend: `drop index concurrently :"schema".runs_listed`,
		},
		"another one": {
			before: []string{strings.Replace(create, "(status, started_at, id, owner)", "(status)", 1)},
			says:   "another index", mend: `drop index :"schema".runs_listed`,
		},
		"whose name is taken": {before: []string{`create table :"schema".runs_listed ()`}, says: "taken", mend: `drop table :"schema".runs_listed`},
	} {
		t.Run(name, func(t *testing.T) {
			opts := Options{Schema: pgtest.Schema(t)}
			s, err := unchecked(pool, opts)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.migrate(t.Context(), all[:1]); err != nil {
				t.Fatal(err)
			}
			exec := func(text string) error {
				_, err := pool.Exec(t.Context(), inSchema(text, opts.Schema), pgx.QueryExecModeSimpleProtocol)
				return err
			}
			for i, text := range c.before {
				if err := exec(text); (err != nil) != (c.fails && i == len(c.before)-1) {
					t.Fatalf("%s: %v", text, err)
				}
			}
			if c.says != "" {
				_, err := New(pool, opts)
				refusal, ok := errors.AsType[*SetupError](err)
				if !ok || refusal.Problem != ProblemIndex || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "runs_listed") || refusal.Remedy == "" {
					t.Errorf("it was answered %v", err)
				}
				if missing, err := s.missing(t.Context(), pool, all); err != nil || len(missing) != len(all)-1 {
					t.Errorf("%d migrations are missing, %v", len(missing), err)
				}
				if err := exec(c.mend); err != nil {
					t.Fatal(err)
				}
			}
			testStore(t, pool, opts)
			if got, err := s.describe(t.Context(), pool, nil); err != nil || got != golden {
				t.Errorf("it differs at %q, %v", difference(golden, got), err)
			}
		})
	}
}
