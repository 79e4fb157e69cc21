package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Pending is what a schema lacks of the one that this build works with.
type Pending struct {
	// Migrations are the names of those that are missing, in their order; empty: the schema is
	// up to date.
	Migrations []string
	// Script is SQL that applies them as Migrate does, a transaction for each, for psql say; empty when
	// there are none. It is for the schema as it is now.
	Script string
}

// Migrate brings the schema up to date, as Open does without Options.VerifyOnly, and answers the
// names of the migrations that it applied, each whole and in a transaction of its own. A refusal is a
// *SetupError; what was applied before stays, and programs of either release work with it.
func Migrate(ctx context.Context, dsn string, opts Options) (applied []string, err error) {
	err = setUpOnly(ctx, dsn, opts, func(ctx context.Context, s *Store, all []migration) error {
		missing, err := s.missing(ctx, s.pool, all)
		if err != nil || len(missing) == 0 {
			return err
		}
		done, err := s.migrate(ctx, all)
		applied = append(applied, namesOf(done)...)
		return err
	})
	return applied, err
}

// PendingMigrations tells what Migrate would do, and changes nothing. It needs no right to
// change the schema.
func PendingMigrations(ctx context.Context, dsn string, opts Options) (pending Pending, err error) {
	err = setUpOnly(ctx, dsn, opts, func(ctx context.Context, s *Store, all []migration) error {
		missing, err := s.missing(ctx, s.pool, all)
		if err != nil || len(missing) == 0 {
			return err
		}
		pending.Migrations = namesOf(missing)
		pending.Script, err = s.script(ctx, missing)
		return err
	})
	return pending, err
}

// setUpOnly does something with a schema that no store is opened on.
func setUpOnly(ctx context.Context, dsn string, opts Options, do func(ctx context.Context, s *Store, all []migration) error) error {
	pool, err := connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	s, err := unchecked(pool, opts)
	if err != nil {
		return err
	}
	return s.settingUp(ctx, func(ctx context.Context, all []migration) error { return do(ctx, s, all) })
}

func namesOf(migrations []migration) []string {
	names := make([]string, len(migrations))
	for i, m := range migrations {
		names[i] = m.name
	}
	return names
}

// script is what migrate does, as text.
func (s *Store) script(ctx context.Context, missing []migration) (string, error) {
	create, err := s.creation(ctx, s.pool)
	if err != nil {
		return "", err
	}
	columns := ""
	if missing[0].number == 1 {
		if columns, err = s.compression(ctx, s.pool); err != nil {
			return "", err
		}
	}
	schema := pgx.Identifier{s.opts.Schema}.Sanitize()
	var b strings.Builder
	statement := func(text string) { fmt.Fprintf(&b, "%s;\n\n", strings.TrimRight(strings.TrimSpace(text), ";")) }
	// A transaction for each, as migrate does it, so that no two tables are waited for at once.
	for i, m := range missing {
		statement("begin")
		statement(fmt.Sprintf("select pg_advisory_xact_lock(%d)", s.lockKey("migrate")))
		if i == 0 {
			statement(create)
		}
		fmt.Fprintf(&b, "-- %s\n", m.name)
		statement(strings.ReplaceAll(m.text, placeholder, schema))
		if columns != "" && i == 0 {
			statement(columns)
		}
		statement(s.entry(m))
		statement("commit")
	}
	fmt.Fprintf(&b, "-- A role that runs belay, and does not own the schema, needs:\n"+
		"-- grant usage on schema %[1]s to ROLE;\n-- grant select, insert, update, delete on all tables in schema %[1]s to ROLE;\n", schema)
	return b.String(), nil
}
