package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/proptest"
)

// TestThePreviousSchemaIsFrozen: a release's schema never changes after the fact. Each is kept as
// testdata/schema-N.sql, and N is the number of its last migration.
func TestThePreviousSchemaIsFrozen(t *testing.T) {
	all := migrationsOf(t)
	for n := 1; n < len(all); n++ {
		name := fmt.Sprintf("testdata/schema-%d.sql", n)
		got := schemaOf(t, freshFile(t), all[:n])
		if *update {
			must(t, os.WriteFile(name, []byte(got), 0o644))
			continue
		}
		want, err := os.ReadFile(name)
		must(t, err)
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestConformanceOfAnUpgradedSchema: files that the first release made and this one has upgraded
// keep the core of the contract. (What that release itself does on them, examples/rolling shows with its binary.)
func TestConformanceOfAnUpgradedSchema(t *testing.T) {
	t.Parallel()
	all := migrationsOf(t)
	ctx := context.Background()
	proptest.Conformance(t, func(t proptest.T) proptest.Opened {
		t.Helper()
		dir, err := os.MkdirTemp("", "belay-previous-")
		if err != nil {
			t.Fatalf("%v", err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		path := filepath.Join(dir, "belay.db")
		if err := firstRelease(ctx, path, all[:1]); err != nil {
			t.Fatalf("the first release's schema: %v", err)
		}
		s, err := Open(ctx, path, Options{Synchronous: Normal})
		if err != nil {
			t.Fatalf("%v", err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return proptest.Opened{Store: s}
	}, proptest.Options{Only: []string{"R1", "R2", "K1", "K5", "K7", "K8", "K9", "T1", "T2", "T5", "E1", "E2"}})
}

// firstRelease makes a file as the first release did.
func firstRelease(ctx context.Context, path string, first []migration) error {
	if err := create(path); err != nil {
		return err
	}
	c, err := dial(fileURI(path, "rw", nil))
	if err != nil {
		return err
	}
	defer c.close()
	return migrate(ctx, c, path, first, testClock, 0)
}
