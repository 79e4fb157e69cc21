package sqlite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/run"
)

var update = flag.Bool("update", false, "write schema.sql anew")

// TestSchemaIsGolden: what the migrations lead to is the text in the repository.
func TestSchemaIsGolden(t *testing.T) {
	got := schemaOf(t, freshFile(t), migrationsOf(t))
	if *update {
		if err := os.WriteFile("schema.sql", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(schemaText, got); diff != "" {
		t.Errorf("the schema is not schema.sql (go test -run %s -update writes it):\n%s", t.Name(), diff)
	}
}

func freshFile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "belay.db")
}

func migrationsOf(t *testing.T) []migration {
	t.Helper()
	all, err := loadMigrations()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func made(t *testing.T, number int64, name, text string) migration {
	t.Helper()
	m, err := newMigration(number, name, text)
	must(t, err)
	return m
}

// schemaOf applies migrations and tells the schema.
func schemaOf(t *testing.T, path string, all []migration) string {
	t.Helper()
	ctx := context.Background()
	c, err := dial(fileURI(path, "rwc", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := migrate(ctx, c, path, all, testClock, 0); err != nil {
		t.Fatal(err)
	}
	schema, err := currentSchema(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// TestUpgradeFromEveryVersionEqualsFresh: of the real migrations, and of a longer list that
// shows that the comparison can fail.
func TestUpgradeFromEveryVersionEqualsFresh(t *testing.T) {
	real := migrationsOf(t)
	longer := append(slices.Clone(real),
		made(t, 2, "0002_more.sql", "alter table belay_runs add column more text; create index belay_more on belay_runs (more)"),
		made(t, 3, "0003_less.sql", compatibleFrom+"2\ndrop index belay_more"))
	for _, all := range [][]migration{real, longer} {
		fresh := schemaOf(t, freshFile(t), all)
		for n := range len(all) {
			path := freshFile(t)
			if n > 0 {
				schemaOf(t, path, all[:n])
			}
			if diff := cmp.Diff(fresh, schemaOf(t, path, all)); diff != "" {
				t.Errorf("from version %d of %d:\n%s", n, len(all), diff)
			}
		}
	}
	if schemaOf(t, freshFile(t), longer[:2]) == schemaOf(t, freshFile(t), longer) {
		t.Error("two versions have one schema: nothing was compared")
	}
}

// TestAFailedMigrationLeavesTheVersionBefore: with its ledger, ready to be tried again.
func TestAFailedMigrationLeavesTheVersionBefore(t *testing.T) {
	ctx := context.Background()
	path := freshFile(t)
	real := migrationsOf(t)
	before := schemaOf(t, path, real)
	c, err := dial(fileURI(path, "rw", nil))
	must(t, err)
	defer c.close()
	broken := append(slices.Clone(real), made(t, 2, "0002_broken.sql", "create table belay_half (x); create table belay_half (x)"))
	if err := migrate(ctx, c, path, broken, testClock, 0); err == nil {
		t.Fatal("it was applied")
	}
	if diff := cmp.Diff(before, schemaOf(t, path, real)); diff != "" {
		t.Error(diff)
	}
}

// TestSeveralOpenAFreshFileAtOnce: the migrations run once, and everybody gets a store (H21).
func TestSeveralOpenAFreshFileAtOnce(t *testing.T) {
	path := freshFile(t)
	inParallel(6, func(int) {
		s, err := Open(context.Background(), path, Options{})
		if err != nil {
			t.Error(err)
			return
		}
		publishGraph(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	openPath(t, path, Options{})
}

// TestALookAtTheLedgerIsOneSnapshot: whoever looks while another migrates sees the file as
// it was before or as it is after, and never a version without its ledger.
func TestALookAtTheLedgerIsOneSnapshot(t *testing.T) {
	ctx := context.Background()
	all := migrationsOf(t)
	patient := func(path string) *conn {
		c, err := dial(fileURI(path, "rw", nil))
		must(t, err)
		must(t, c.run(ctx, "pragma busy_timeout = 60000"))
		return c
	}
	for range 20 {
		path := freshFile(t)
		must(t, create(path))
		migrator, looker := patient(path), patient(path)
		migrated := make(chan error, 1)
		go func() { migrated <- migrate(ctx, migrator, path, all, testClock, time.Minute) }()
		for done := false; !done; {
			select {
			case err := <-migrated:
				must(t, err)
				done = true
			default:
			}
			_, err := readLedger(ctx, looker, path, all)
			must(t, err)
		}
		must(t, errors.Join(migrator.close(), looker.close()))
	}
}

// TestTheStatusesOfTheSchemaAreThoseOfTheTable: the CHECKs name what run and checkpoint say
// may be stored, and nothing else.
func TestTheStatusesOfTheSchemaAreThoseOfTheTable(t *testing.T) {
	var statuses []string
	for _, s := range []run.Status{run.Created, run.Running, run.Waiting, run.Done, run.Failed, run.Cancelled} {
		if s.Storable() {
			statuses = append(statuses, string(s))
		}
	}
	var types []string
	for _, c := range checkpoint.Types() {
		types = append(types, string(c))
	}
	for column, want := range map[string][]string{"status": statuses, "checkpoint_type": types} {
		match := regexp.MustCompile(`check \(` + column + ` in \(([^)]*)\)`).FindStringSubmatch(schemaText)
		if match == nil {
			t.Fatalf("no CHECK of %s", column)
		}
		got := regexp.MustCompile(`[a-z_]+`).FindAllString(match[1], -1)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", column, diff)
		}
	}
}

// TestStorageRefusesEveryOtherShape: S1 in the storage itself, whatever a program writes.
func TestStorageRefusesEveryOtherShape(t *testing.T) {
	s := soundStore(t)
	for _, change := range []string{
		"wake_at = null", "claim_token = 't'", "claimed_at = 1", "claim_token = 't', claimed_at = 1", "poisoned_at = 1", "poison_reason = 'x'",
		"poisoned_at = 1, poison_reason = 'x'", "status = 'waiting'", "status = 'done'", "status = 'done', wake_at = null", "status = 'created'",
		"finished_at = 1", "claim_attempts = -1", "claim_abandons = -1", "checkpoint_seq = 0", "checkpoint_type = 'other'", "checkpoint_id = ''",
		"id = ''", "started_at = 'text'", "graph_hash = 'absent'", "owner = 'absent'", "claim_token = '', claimed_at = 1, wake_at = null",
	} {
		c, err := dial(fileURI(s.Path(), "rw", nil))
		must(t, err)
		must(t, c.run(context.Background(), "pragma foreign_keys = 1"))
		if err := c.run(context.Background(), "update belay_runs set "+change+" where id = 'ready'"); err == nil {
			t.Errorf("set %s was stored", change)
		}
		must(t, c.close())
	}
}

// TestAnOlderBuildWorksOnAnExpandedSchema, and one that a later migration breaks is kept out.
func TestAnOlderBuildWorksOnAnExpandedSchema(t *testing.T) {
	ctx := context.Background()
	real := migrationsOf(t)
	last := int64(len(real))
	expand := made(t, last+1, "9998_more.sql", "alter table belay_runs add column more text; create table belay_more (x integer) strict")
	contract := made(t, last+2, "9999_less.sql", compatibleFrom+fmt.Sprint(last+1)+"\ndrop table belay_more")

	path := freshFile(t)
	schemaOf(t, path, append(slices.Clone(real), expand))
	must(t, os.Chmod(path, 0o600))
	s := openPath(t, path, Options{})
	publishGraph(t, s)
	for finding, err := range s.Audit(ctx, backend.AuditPolicy{}) {
		must(t, err)
		t.Errorf("the audit finds %v", finding)
	}
	must(t, s.Backup(ctx, filepath.Join(t.TempDir(), "copy.db")))
	must(t, s.Close())

	schemaOf(t, path, append(slices.Clone(real), expand, contract))
	_, err := Open(ctx, path, Options{})
	if open := (*OpenError)(nil); !errors.As(err, &open) || open.Problem != ProblemNewer {
		t.Errorf("a schema that this build does not work with: %v", err)
	}
}
