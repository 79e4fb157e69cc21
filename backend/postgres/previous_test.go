package postgres

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/belay-run/belay/internal/pgtest"
	"github.com/belay-run/belay/proptest"
)

// TestThePreviousSchemaIsFrozen: a release's schema never changes after the fact. Each is kept as
// testdata/schema-N.golden, and N is the number of its last migration.
func TestThePreviousSchemaIsFrozen(t *testing.T) {
	all, err := loadMigrations()
	if err != nil {
		t.Fatal(err)
	}
	pool := testPool(t)
	for n := 1; n < len(all); n++ {
		s, err := unchecked(pool, Options{Schema: pgtest.Schema(t)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.migrate(t.Context(), all[:n]); err != nil {
			t.Fatal(err)
		}
		got, err := s.describe(t.Context(), pool, nil)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("testdata/schema-%d.golden", n)
		if *update {
			if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is not what its migrations lead to:\n%s", name, got)
		}
	}
}

// TestConformanceOfAnUpgradedSchema: schemas that the first release made and this one has upgraded
// keep the core of the contract. (What that release itself does on them, examples/rolling shows
// with its binary.)
func TestConformanceOfAnUpgradedSchema(t *testing.T) {
	t.Parallel()
	all, err := loadMigrations()
	if err != nil {
		t.Fatal(err)
	}
	pool := testPool(t)
	proptest.Conformance(t, func(t proptest.T) proptest.Opened {
		t.Helper()
		ctx := context.Background()
		schema := pgtest.Schema(t)
		s, err := unchecked(pool, Options{Schema: schema})
		if err != nil {
			t.Fatalf("%v", err)
		}
		if _, err := s.migrate(ctx, all[:1]); err != nil {
			t.Fatalf("the first release's schema: %v", err)
		}
		upgraded, err := New(pool, Options{Schema: schema})
		if err != nil {
			t.Fatalf("%v", err)
		}
		t.Cleanup(func() { _ = upgraded.Close() })
		return proptest.Opened{Store: upgraded}
	}, proptest.Options{Only: []string{"R1", "R2", "K1", "K5", "K7", "K8", "K9", "T1", "T2", "T5", "E1", "E2"}})
}
