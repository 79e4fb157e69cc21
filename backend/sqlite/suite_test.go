package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/internal/procstore"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/run"
)

// TestConformance: the whole contract on one file.
func TestConformance(t *testing.T) {
	t.Parallel()
	proptest.Conformance(t, open, proptest.Options{})
}

// TestCheck: random histories against the kit's model.
func TestCheck(t *testing.T) {
	t.Parallel()
	proptest.Check(t, open, proptest.Options{})
}

// TestLinearizable: goroutines on one store.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	proptest.Linearizable(t, open, proptest.Options{Histories: 20})
}

// TestLinearizableHandles: the same where every call goes through another store on the
// same file, so that connections of their own meet in it.
func TestLinearizableHandles(t *testing.T) {
	t.Parallel()
	proptest.Linearizable(t, openHandles, proptest.Options{Histories: 20})
}

// TestConformanceOfHandles: the same where every call goes through another store on the
// same file.
func TestConformanceOfHandles(t *testing.T) {
	t.Parallel()
	proptest.Conformance(t, openHandles, proptest.Options{})
}

// TestCheckOfHandles: the same.
func TestCheckOfHandles(t *testing.T) {
	t.Parallel()
	proptest.Check(t, openHandles, proptest.Options{Rounds: 2})
}

// TestConformanceOfProcesses: the same where every call is made by another process.
func TestConformanceOfProcesses(t *testing.T) {
	t.Parallel()
	proptest.Conformance(t, openEverywhere, proptest.Options{})
}

// TestCheckOfProcesses: the same.
func TestCheckOfProcesses(t *testing.T) {
	t.Parallel()
	proptest.Check(t, openEverywhere, proptest.Options{Rounds: 2})
}

// TestLinearizableOfProcesses: the same.
func TestLinearizableOfProcesses(t *testing.T) {
	t.Parallel()
	proptest.Linearizable(t, openEverywhere, proptest.Options{Histories: 20})
}

func openHandles(t proptest.T) proptest.Opened {
	t.Helper()
	f := newFixture(t)
	return f.opened(procstore.NewSeveral(f.open(t), f.store))
}

// peers are the processes that the tests share.
var peers = procstore.NewPeers(func() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"=remote", childOffset+"=0")
	cmd.Stderr = os.Stderr
	return cmd
})

// openRemote opens a store in one of them.
func openRemote(path string, now func() time.Time) (procstore.Store, error) {
	return sqlite.Open(context.Background(), path, sqlite.Options{Now: now, Synchronous: sqlite.Normal})
}

// openEverywhere opens a fresh store in several processes.
func openEverywhere(t proptest.T) proptest.Opened {
	t.Helper()
	f := newFixture(t)
	e, err := peers.Open(f.path, f.store)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	o := f.opened(e)
	o.Hooks.SetClock = func(now time.Time) {
		f.setClock(now)
		if err := e.SetClock(now); err != nil {
			t.Errorf("%v", err)
		}
	}
	return o
}

// open makes a store in a folder of its own, with every hook SQLite allows. Without LockRun:
// SQLite locks a file, not a row.
func open(t proptest.T) proptest.Opened {
	t.Helper()
	f := newFixture(t)
	o := f.opened(f.store)
	o.Hooks.Reopen = f.reopen
	return o
}

func newFixture(t proptest.T) *fixture {
	t.Helper()
	dir, err := os.MkdirTemp("", "belay")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &fixture{path: filepath.Join(dir, "belay.db")}
	if err := os.WriteFile(f.path, emptyStore(), 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	f.store = f.open(t)
	return f
}

// emptyStore is the file of an empty store: hundreds of tests need one, and creating it
// costs more than most of them.
var emptyStore = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "belay")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "belay.db")
	s, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		panic(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return raw
})

func (f *fixture) opened(s backend.Store) proptest.Opened {
	return proptest.Opened{Store: s, Hooks: proptest.Hooks{
		WriteDocument: f.writeDocument, WriteEvent: f.writeEvent, WriteGraph: f.writeGraph, SetClock: f.setClock, Host: f.host, Audit: f.audit,
	}}
}

// fixture is a store's file and what tests reach it by.
type fixture struct {
	path  string
	store *sqlite.Store

	mu  sync.Mutex
	now time.Time // zero: the system's clock
}

func (f *fixture) open(t proptest.T) *sqlite.Store {
	t.Helper()
	// What the suite proves does not depend on flushing, which has tests of its own.
	s, err := sqlite.Open(context.Background(), f.path, sqlite.Options{Now: f.clock, Synchronous: sqlite.Normal})
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func (f *fixture) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now.IsZero() {
		return time.Now()
	}
	return f.now
}

func (f *fixture) setClock(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = now
}

func (f *fixture) reopen(t proptest.T) backend.Store {
	t.Helper()
	if err := f.store.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	f.store = f.open(t)
	return f.store
}

// raw runs one statement past every check of the store.
func (f *fixture) raw(ctx context.Context, text string, args ...any) error {
	db, err := sql.Open("sqlite", "file://"+f.path+"?_busy_timeout=10000&_foreign_keys=0")
	if err != nil {
		return err
	}
	res, err := db.ExecContext(ctx, text, args...)
	if err == nil {
		var n int64
		if n, err = res.RowsAffected(); err == nil && n != 1 {
			err = errors.New("it did not change one row")
		}
	}
	return errors.Join(err, db.Close())
}

func (f *fixture) writeDocument(ctx context.Context, run string, raw []byte) error {
	return f.raw(ctx, "update belay_documents set body = ?2 where run = (select no from belay_runs where id = ?1)", run, raw)
}

// writeEvent replaces one event, for which those that share its row get rows of their own: so old
// and new rows stand beside each other, too.
func (f *fixture) writeEvent(ctx context.Context, id string, seq int64, raw []byte) error {
	db, err := sql.Open("sqlite", "file://"+f.path+"?_busy_timeout=10000&_foreign_keys=0")
	if err != nil {
		return err
	}
	defer db.Close()
	var number, last int64
	var head []byte
	if err := db.QueryRowContext(ctx, `select run, seq, substr(body, 1, ?3) from belay_events
		where seq >= ?2 and run = (select no from belay_runs where id = ?1) order by seq limit 1`, id, seq, backend.EventRowHead).
		Scan(&number, &last, &head); err != nil {
		return err
	}
	first, err := backend.FirstEvent(id, last, head)
	if err != nil {
		return err
	}
	page := backend.EventPage{}
	if first < last {
		if page, err = f.store.ListEvents(ctx, backend.System(), id, backend.EventQuery{After: first - 1, Limit: int(last - first + 1)}); err != nil {
			return err
		}
	}
	for _, e := range page.Events {
		body, err := run.EncodeEvent(e)
		if err != nil {
			return err
		}
		text := "insert into belay_events (run, seq, body) values (?1, ?2, ?3)"
		if e.Seq == last {
			text = "update belay_events set body = ?3, digest = null where run = ?1 and seq = ?2"
		}
		if _, err := db.ExecContext(ctx, text, number, e.Seq, body); err != nil {
			return err
		}
	}
	_, err = db.ExecContext(ctx, "update belay_events set body = ?3, digest = null where run = ?1 and seq = ?2", number, seq, raw)
	return err
}

func (f *fixture) writeGraph(ctx context.Context, owner backend.Owner, ref graph.Ref, raw []byte) error {
	tenant, _ := owner.Tenant()
	return f.raw(ctx, "update belay_graphs set body = ?4 where owner = ?1 and graph_id = ?2 and graph_hash = ?3", tenant, ref.ID, ref.Hash, raw)
}

func (f *fixture) host(ctx context.Context, fn func(tx backend.Starter) error) error {
	db, err := sql.Open("sqlite", f.store.HostDSN())
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(f.store.WithTx(tx)); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (f *fixture) audit(ctx context.Context) (lines []string, err error) {
	for finding, err := range f.store.Audit(ctx, backend.AuditPolicy{}) {
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s", finding.Check, finding.Run, finding.Detail))
	}
	return lines, nil
}
