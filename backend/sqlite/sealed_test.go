package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/internal/sealtest"
	"github.com/belay-run/belay/proptest"
)

// TestSealed: what a store with a Sealer promises.
func TestSealed(t *testing.T) {
	t.Parallel()
	sealtest.Run(t, func(t *testing.T) sealtest.Data {
		f := newFixture(t)
		return sealtest.Data{
			// A row for each event, since its tests change one and look at the others.
			Open: func(t *testing.T, s backend.Sealer) backend.Store { return f.openSealed(t, s, nil, 1) },
			Document: func(t *testing.T, run string) (stored []byte) {
				f.look(t, "select d.body from belay_documents d join belay_runs r on r.no = d.run where r.id = ?1", []any{run}, &stored)
				return stored
			},
			WriteDocument: func(t *testing.T, run string, stored []byte) {
				if err := f.writeDocument(t.Context(), run, stored); err != nil {
					t.Fatal(err)
				}
			},
			Event: func(t *testing.T, run string, seq int64) (stored, digest []byte) {
				f.look(t, "select e.body, e.digest from belay_events e join belay_runs r on r.no = e.run where r.id = ?1 and e.seq = ?2", []any{run, seq}, &stored, &digest)
				return stored, digest
			},
			WriteEvent: func(t *testing.T, run string, seq int64, stored, digest []byte) {
				err := f.raw(t.Context(), "update belay_events set body = ?3, digest = ?4 where seq = ?2 and run = (select no from belay_runs where id = ?1)", run, seq, stored, digest)
				if err != nil {
					t.Fatal(err)
				}
			},
			Dump: func(t *testing.T) []byte {
				var all [][]byte
				for _, name := range []string{f.path, f.path + "-wal", f.path + "-shm"} {
					raw, err := os.ReadFile(name)
					if err != nil && !errors.Is(err, fs.ErrNotExist) {
						t.Fatal(err)
					}
					all = append(all, raw)
				}
				return bytes.Join(all, nil)
			},
		}
	})
}

// look reads one row.
func (f *fixture) look(t *testing.T, text string, args []any, into ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", "file://"+f.path+"?_busy_timeout=10000&mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.QueryRowContext(t.Context(), text, args...).Scan(into...), db.Close()); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) openSealed(t proptest.T, s backend.Sealer, clock *fixture, format int) *sqlite.Store {
	t.Helper()
	opts := sqlite.Options{Synchronous: sqlite.Normal, Sealer: s, WriteFormat: format}
	if clock != nil {
		opts.Now = clock.clock
	}
	store, err := sqlite.Open(context.Background(), f.path, opts)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// openRotating opens stores that seal with AES-GCM, each payload under another key than the one
// before, and every fourth not at all.
func openRotating(t proptest.T) proptest.Opened {
	t.Helper()
	f := newFixture(t)
	reopen := func(t proptest.T) *sqlite.Store {
		if err := f.store.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		f.store = f.openSealed(t, sealtest.Rotating(t, "k1", "k2", "k3", ""), f, 0)
		return f.store
	}
	o := f.opened(reopen(t))
	o.Hooks.Reopen = func(t proptest.T) backend.Store { return reopen(t) }
	return o
}

// TestConformanceOfSealed: the whole contract where everything is sealed.
func TestConformanceOfSealed(t *testing.T) {
	t.Parallel()
	proptest.Conformance(t, openRotating, proptest.Options{})
}

// TestCheckOfSealed: the same of random histories.
func TestCheckOfSealed(t *testing.T) {
	t.Parallel()
	proptest.Check(t, openRotating, proptest.Options{Rounds: 2})
}

// TestLinearizableOfSealed: the same of goroutines on one store.
func TestLinearizableOfSealed(t *testing.T) {
	t.Parallel()
	proptest.Linearizable(t, openRotating, proptest.Options{Histories: 20})
}
