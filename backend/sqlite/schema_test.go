package sqlite

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write schema.sql anew")

// TestSchemaIsGolden: what the migrations lead to is the text in the repository.
func TestSchemaIsGolden(t *testing.T) {
	got := schemaAfter(t, freshFile(t), len(migrationsOf(t)))
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

// schemaAfter applies the first n migrations, in one go, and tells the schema.
func schemaAfter(t *testing.T, path string, n int) string {
	t.Helper()
	ctx := context.Background()
	c, err := dial(fileURI(path, "rwc", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := migrate(ctx, c, path, migrationsOf(t)[:n], testClock, 0); err != nil {
		t.Fatal(err)
	}
	schema, err := currentSchema(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}
