package postgres_test

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/internal/pgtest"
	"github.com/belay-run/belay/internal/sealtest"
	"github.com/belay-run/belay/proptest"
)

// TestSealed: what a store with a Sealer promises.
func TestSealed(t *testing.T) {
	t.Parallel()
	a := direct(t)
	sealtest.Run(t, func(t *testing.T) sealtest.Data {
		f := &fixture{access: a, schema: pgtest.Schema(t)}
		one := func(t *testing.T, text string, args []any, into ...any) {
			t.Helper()
			if err := f.raw.QueryRow(t.Context(), text, args...).Scan(into...); err != nil {
				t.Fatal(err)
			}
		}
		return sealtest.Data{
			// A row for each event, since its tests change one and look at the others.
			Open: func(t *testing.T, s backend.Sealer) backend.Store {
				store, err := postgres.New(a.pool(), postgres.Options{Schema: f.schema, Sealer: s, WriteFormat: 1})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = store.Close() })
				return store
			},
			Document: func(t *testing.T, run string) (stored []byte) {
				one(t, "select document from "+f.table("runs")+" where id = $1", []any{run}, &stored)
				return stored
			},
			WriteDocument: func(t *testing.T, run string, stored []byte) {
				if err := f.writeDocument(t.Context(), run, stored); err != nil {
					t.Fatal(err)
				}
			},
			Event: func(t *testing.T, run string, seq int64) (stored, digest []byte) {
				one(t, "select body, digest from "+f.table("events")+" where run_id = $1 and seq = $2", []any{run, seq}, &stored, &digest)
				return stored, digest
			},
			WriteEvent: func(t *testing.T, run string, seq int64, stored, digest []byte) {
				err := f.change(t.Context(), "update "+f.table("events")+" set body = $3, digest = $4 where run_id = $1 and seq = $2", run, seq, stored, digest)
				if err != nil {
					t.Fatal(err)
				}
			},
			Dump: func(t *testing.T) []byte { return f.dump(t) },
		}
	})
}

// dump is every column of every table of the schema, bytes as they are.
func (f *fixture) dump(t *testing.T) []byte {
	t.Helper()
	names, err := f.raw.Query(t.Context(), "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relkind = 'r'", f.schema)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(names, pgx.RowTo[string])
	if err != nil || len(tables) == 0 {
		t.Fatalf("%v, %v", tables, err)
	}
	var all bytes.Buffer
	conn, err := f.raw.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, name := range tables {
		if _, err := conn.Conn().PgConn().CopyTo(t.Context(), &all, "copy "+f.table(name)+" to stdout (format binary)"); err != nil {
			t.Fatal(err)
		}
	}
	return all.Bytes()
}

// rotating is access by stores that seal with AES-GCM, each payload under another key than the one
// before, and every fourth not at all.
func rotating(t *testing.T) access {
	t.Helper()
	a := direct(t)
	a.opts.Sealer = sealtest.Rotating(t, "k1", "k2", "k3", "")
	return a
}

// TestConformanceOfSealed: the whole contract where everything is sealed.
func TestConformanceOfSealed(t *testing.T) {
	t.Parallel()
	proptest.Conformance(t, opener(t, rotating(t)), proptest.Options{})
}

// TestCheckOfSealed: the same of random histories.
func TestCheckOfSealed(t *testing.T) {
	t.Parallel()
	proptest.Check(t, opener(t, rotating(t)), proptest.Options{Rounds: 2})
}

// TestLinearizableOfSealed: the same of goroutines on one store.
func TestLinearizableOfSealed(t *testing.T) {
	proptest.Linearizable(t, opener(t, rotating(t)), proptest.Options{Histories: 20})
}
