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
				if got, err := s.describe(t.Context(), s.pool); err != nil || got != golden {
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
	if !ok || refusal.Problem != ProblemOutdated || !strings.Contains(refusal.Error(), "0001_runs.sql and later migrations are missing") {
		t.Errorf("it was answered %v", refusal)
	}
	exists := true
	if err := pool.QueryRow(context.Background(), "select to_regnamespace($1) is not null", opts.Schema).Scan(&exists); err != nil || exists {
		t.Errorf("the schema is there: %v, %v", exists, err)
	}
}
