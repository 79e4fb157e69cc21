package sqlite

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// migration is one numbered step of the schema. Steps are applied in order, each in a
// transaction of its own with its line in the ledger, and never change once released.
type migration struct {
	number     int64
	name, text string
	hash       string // SHA-256 of text
	// from is the oldest schema whose builds still work with this one. A migration that only
	// expands leaves it alone, so that builds before and after it can share a file.
	from int64
}

// compatibleFrom is the line of a migration that says what from is; without it, the
// migration breaks nothing.
const compatibleFrom = "-- compatible from: "

//go:embed migrations/*.sql
var migrationFiles embed.FS

// schemaText is the schema that the migrations lead to, as SQLite tells it.
//
//go:embed schema.sql
var schemaText string

const ledger = `create table belay_migrations (
  number integer primary key,
  name text not null,
  sha256 text not null,
  applied_at integer not null
) strict`

func loadMigrations() ([]migration, error) {
	entries, err := migrationFiles.ReadDir("migrations")
	if err != nil {
		return nil, err
	}
	var all []migration
	for _, e := range entries {
		text, err := migrationFiles.ReadFile("migrations/" + e.Name())
		if err != nil {
			return nil, err
		}
		digits, _, _ := strings.Cut(e.Name(), "_")
		number, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("migration %s has no number: %w", e.Name(), err)
		}
		m, err := newMigration(number, e.Name(), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b migration) int { return cmp.Compare(a.number, b.number) })
	return all, nil
}

func newMigration(number int64, name, text string) (migration, error) {
	sum := sha256.Sum256([]byte(text))
	m := migration{number: number, name: name, text: text, hash: hex.EncodeToString(sum[:]), from: 1}
	for line := range strings.Lines(text) {
		if from, ok := strings.CutPrefix(line, compatibleFrom); ok {
			var err error
			if m.from, err = strconv.ParseInt(strings.TrimSpace(from), 10, 64); err != nil {
				return migration{}, fmt.Errorf("migration %s: %w", name, err)
			}
		}
	}
	return m, nil
}

// oldestBuild is the oldest schema whose builds work with what these migrations lead to. It is kept
// as user_version, which is the fence against builds that are older still.
func oldestBuild(applied []migration) (from int64) {
	for _, m := range applied {
		from = max(from, m.from)
	}
	return from
}

// migrate brings the schema up to the last of all, on a connection that writes. It
// refuses what it must not touch before it changes anything.
func migrate(ctx context.Context, c *conn, path string, all []migration, now time.Time, timeout time.Duration) error {
	last := all[len(all)-1].number
	version, err := readLedger(ctx, c, path, all)
	if err != nil || version >= last {
		return err
	}
	if version == 0 {
		// Only a file without pages takes it. One that has tables already must have been made
		// so, and with the right encoding, which is known before anything is written to it.
		for _, fixed := range []setting{{"encoding", "", "UTF-8"}, {"auto_vacuum", "2", "2"}} {
			if err := apply(ctx, c, path, []setting{fixed}); err != nil {
				return err
			}
		}
	}
	for _, m := range all {
		if m.number <= version {
			continue
		}
		if err := step(ctx, c, path, all, m, now, timeout); err != nil {
			return err
		}
	}
	return nil
}

// step applies m, unless another process did meanwhile.
func step(ctx context.Context, c *conn, path string, all []migration, m migration, now time.Time, timeout time.Duration) (err error) {
	if err := beginWithin(ctx, c, timeout); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.run(context.WithoutCancel(ctx), "rollback"))
		}
	}()
	version, err := checkLedger(ctx, c, path, all)
	if err != nil {
		return err
	}
	if version >= m.number {
		return c.run(ctx, "commit")
	}
	if version == 0 {
		if err := c.run(ctx, ledger); err != nil {
			return err
		}
	}
	if err := c.run(ctx, m.text); err != nil {
		return fmt.Errorf("migration %s: %w", m.name, err)
	}
	entry := fmt.Sprintf("insert into belay_migrations (number, name, sha256, applied_at) values (%d, '%s', '%s', %d); pragma user_version = %d; commit",
		m.number, m.name, m.hash, now.UnixMicro(), oldestBuild(all[:version+1]))
	return c.run(ctx, entry)
}

// readLedger is checkLedger in a snapshot of its own: another process may be migrating.
func readLedger(ctx context.Context, c *conn, path string, all []migration) (version int64, err error) {
	if err := c.run(ctx, "begin"); err != nil {
		return 0, err
	}
	version, err = checkLedger(ctx, c, path, all)
	if end := c.run(context.WithoutCancel(ctx), "rollback"); err == nil {
		err = end
	}
	return version, err
}

// checkLedger answers the schema's version, 0 for a file belay has not been in, after
// comparing user_version and the ledger with all. A newer version that this build works with
// is answered too.
func checkLedger(ctx context.Context, c *conn, path string, all []migration) (version int64, err error) {
	var oldest, tables int64
	one := func(into *int64) func(row) error {
		return func(r row) error { *into = r.int(0); return nil }
	}
	if err := c.read(ctx, "pragma user_version", one(&oldest)); err != nil {
		return 0, err
	}
	if err := c.read(ctx, "select count(*) from sqlite_schema where type = 'table' and name = 'belay_migrations'", one(&tables)); err != nil {
		return 0, err
	}
	last := all[len(all)-1].number
	switch {
	case tables == 0 && oldest == 0:
		return 0, nil
	case tables == 0:
		return 0, &OpenError{
			Path: path, Problem: ProblemForeign, Err: fmt.Errorf("its user_version is %d", oldest),
			Remedy: "name another file; beside a host's own tables belay needs user_version for itself",
		}
	case oldest > last:
		return 0, &OpenError{
			Path: path, Problem: ProblemNewer, Err: fmt.Errorf("it needs a build that knows schema version %d, this one knows %d", oldest, last),
			Remedy: "use that version of belay or a later one, or restore a backup from before the upgrade",
		}
	}
	err = c.read(ctx, "select number, name, sha256 from belay_migrations order by number", func(r row) error {
		version++
		if r.int(0) != version || version <= last && all[version-1].hash != r.text(2) {
			return &OpenError{
				Path: path, Problem: ProblemLedger, Err: fmt.Errorf("migration %d (%s) is not the one of this build", r.int(0), r.text(1)),
				Remedy: "use a released build; a file of an unreleased one is not carried on",
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if known := oldestBuild(all[:min(version, last)]); oldest < known || oldest > known && version <= last || oldest > version {
		return 0, &OpenError{
			Path: path, Problem: ProblemLedger, Err: fmt.Errorf("user_version is %d, and by its ledger of %d migrations it should be %d", oldest, version, known),
			Remedy: "another program has set user_version: set it back, or restore a backup",
		}
	}
	return version, nil
}

// beginWithin begins a writing transaction, waiting for other writers.
func beginWithin(ctx context.Context, c *conn, timeout time.Duration) error {
	var wait backoff
	for deadline := time.Now().Add(timeout); ; {
		err := c.run(ctx, "begin immediate")
		if err == nil || !isBusy(err) || time.Now().After(deadline) {
			return err
		}
		if err := wait.pause(ctx.Done()); err != nil {
			return context.Cause(ctx)
		}
	}
}

// currentSchema is the schema of belay's tables as SQLite tells it, one statement after
// the other in the order of their names.
func currentSchema(ctx context.Context, c *conn) (string, error) {
	var b strings.Builder
	err := c.read(ctx, `select sql from sqlite_schema where name glob 'belay_*' and sql is not null order by type desc, name`, func(r row) error {
		b.WriteString(r.text(0))
		b.WriteString(";\n")
		return nil
	})
	return b.String(), err
}

// checkSchema compares belay's tables and indexes with what the migrations lead to.
func checkSchema(ctx context.Context, c *conn, path string) error {
	name, err := damagedSchema(ctx, c)
	if err == nil && name != "" {
		return &OpenError{
			Path: path, Problem: ProblemDamaged, Err: fmt.Errorf("the schema differs at: %s", name),
			Remedy: "restore a backup, or open it with Options.Damaged to audit it",
		}
	}
	return err
}

// damagedSchema is the first part of the schema that is not as the migrations make it. Of a schema
// that a newer build has expanded this one cannot know.
func damagedSchema(ctx context.Context, c *conn) (name string, err error) {
	all, err := loadMigrations()
	if err != nil {
		return "", err
	}
	version := 0
	if err := c.read(ctx, "select count(*) from belay_migrations", func(r row) error { version = int(r.int(0)); return nil }); err != nil {
		return "", err
	}
	got, err := currentSchema(ctx, c)
	if err != nil || version > len(all) {
		return "", err
	}
	return schemaDifference(schemaText, got), nil
}

// schemaDifference is the first statement, shortened, that is in only one of the two.
func schemaDifference(want, got string) string {
	if want == got {
		return ""
	}
	a, b := strings.Split(want, ";\n"), strings.Split(got, ";\n")
	for _, pair := range [][2][]string{{a, b}, {b, a}} {
		for _, st := range pair[0] {
			if !slices.Contains(pair[1], st) {
				head, _, _ := strings.Cut(st, "\n")
				return strings.TrimSpace(head)
			}
		}
	}
	return "the order of its parts"
}
