//go:build unix

package rolling

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/internal/pgtest"
)

// database is what a fleet shares.
type database struct {
	name string
	args []string // of the service
	dsn  string   // for the command line
	// open opens it with this tree's build, which brings the schema up to date.
	open func(t *testing.T) backend.Store
	// lines answers the first column of what a statement selects. It changes nothing.
	lines func(t *testing.T, statement string) []string
	// applied selects the names of the migrations, newer counts documents of a format above 1.
	applied, newer string
}

// onEach runs a test on a database of each kind, side by side.
func onEach(t *testing.T, test func(t *testing.T, d database)) {
	for name, open := range map[string]func(t *testing.T) database{"postgres": onPostgres, "sqlite": onSQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func onPostgres(t *testing.T) database {
	dsn, schema := pgtest.DSN(t), pgtest.Schema(t)
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	return database{
		name: "postgres",
		args: []string{"-db", dsn, "-schema", schema},
		dsn:  dsn + separator + "belay_schema=" + schema,
		open: func(t *testing.T) backend.Store {
			// A migration beneath processes that write may have to try again until it gets all of its tables.
			s, err := postgres.Open(t.Context(), dsn, postgres.Options{Schema: schema, SetupTimeout: patience})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		},
		lines: func(t *testing.T, statement string) []string {
			t.Helper()
			c, err := pgx.Connect(t.Context(), dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(t.Context())
			rows, err := c.Query(t.Context(), statement)
			if err != nil {
				t.Fatal(err)
			}
			found, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			return found
		},
		applied: "select name from " + schema + ".migrations order by number",
		newer:   "select count(*)::text from " + schema + `.runs where convert_from(document, 'UTF8') not like '{"format":1,%'`,
	}
}

func onSQLite(t *testing.T) database {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "orders.db")
	return database{
		name: "sqlite",
		args: []string{"-db", sqlite.Scheme + path},
		dsn:  sqlite.Scheme + path,
		open: func(t *testing.T) backend.Store { return openSQLite(t, path) },
		lines: func(t *testing.T, statement string) []string {
			t.Helper()
			db, err := sql.Open("sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(30000)")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			rows, err := db.QueryContext(t.Context(), statement)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			var found []string
			for rows.Next() {
				var line string
				if err := rows.Scan(&line); err != nil {
					t.Fatal(err)
				}
				found = append(found, line)
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			return found
		},
		applied: "select name from belay_migrations order by number",
		newer:   `select count(*) from belay_documents where cast(body as text) not like '{"format":1,%'`,
	}
}

func openSQLite(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
