package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
)

var testClock = time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC)

func openStore(t *testing.T, opts Options) *Store {
	t.Helper()
	return openPath(t, freshFile(t), opts)
}

func openPath(t *testing.T, path string, opts Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func runSQL(t *testing.T, path, text string) {
	t.Helper()
	c, err := dial(fileURI(path, "rwc", nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.run(context.Background(), text), c.close()); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOpenRefuses: what cannot be opened, or should not, is refused with the problem and
// with what to do, and is not changed.
func TestOpenRefuses(t *testing.T) {
	written := func(t *testing.T, path string) {
		must(t, openPath(t, path, Options{}).Close())
	}
	for _, c := range []struct {
		name    string
		problem Problem
		says    string
		opts    Options
		make    func(t *testing.T, path string) (open string)
	}{
		{name: "an empty path", problem: ProblemPath, says: "name a file", make: func(*testing.T, string) string { return "sqlite:" }},
		{name: "memory", problem: ProblemPath, says: "the backend memory", make: func(*testing.T, string) string { return ":memory:" }},
		{name: "a NUL", problem: ProblemPath, says: "NUL", make: func(_ *testing.T, path string) string { return path + "\x00" }},
		{name: "a directory", problem: ProblemPath, says: "not a regular file", make: func(t *testing.T, path string) string {
			must(t, os.Mkdir(path, 0o700))
			return path
		}},
		{name: "no directory", problem: ProblemNoDirectory, says: "mkdir -m 700", make: func(_ *testing.T, path string) string {
			return filepath.Join(path, "below.db")
		}},
		{name: "a file as directory", problem: ProblemNoDirectory, says: "is a file", make: func(t *testing.T, path string) string {
			must(t, os.WriteFile(path, nil, 0o600))
			must(t, os.Mkdir(path+".d", 0o700))
			return filepath.Join(path, "below.db")
		}},
		{name: "an open file", problem: ProblemPermissions, says: "chmod 600", make: func(t *testing.T, path string) string {
			written(t, path)
			must(t, os.Chmod(path, 0o640))
			return path
		}},
		{name: "an open log", problem: ProblemPermissions, says: `belay.db-wal"`, make: func(t *testing.T, path string) string {
			written(t, path)
			must(t, os.WriteFile(path+"-wal", nil, 0o600))
			must(t, os.Chmod(path+"-wal", 0o644))
			return path
		}},
		{name: "an open directory", problem: ProblemPermissions, says: "chmod 700", make: func(t *testing.T, path string) string {
			must(t, os.Chmod(filepath.Dir(path), 0o750))
			return path
		}},
		{name: "a directory that others write", problem: ProblemPermissions, says: "chmod 755", opts: Options{SharedDirectory: true}, make: func(t *testing.T, path string) string {
			must(t, os.Chmod(filepath.Dir(path), 0o775))
			return path
		}},
		{name: "not a database", problem: ProblemNotDatabase, says: "name another file", make: func(t *testing.T, path string) string {
			must(t, os.WriteFile(path, []byte(strings.Repeat("a text file, and no database. ", 50)), 0o600))
			return path
		}},
		{name: "a file that is cut off", problem: ProblemDamaged, says: "restore a backup", make: func(t *testing.T, path string) string {
			written(t, path)
			info, err := os.Stat(path)
			must(t, err)
			must(t, os.Truncate(path, info.Size()-5000))
			return path
		}},
		{name: "a file cut off in its header", problem: ProblemDamaged, says: "restore a backup", make: func(t *testing.T, path string) string {
			written(t, path)
			must(t, os.Truncate(path, 90))
			return path
		}},
		{name: "an index that is gone", problem: ProblemDamaged, says: "CREATE INDEX belay_runs_ready", make: func(t *testing.T, path string) string {
			written(t, path)
			runSQL(t, path, "drop index belay_runs_ready")
			return path
		}},
		{name: "a column too many", problem: ProblemDamaged, says: "belay_runs", make: func(t *testing.T, path string) string {
			written(t, path)
			runSQL(t, path, "alter table belay_runs add column more text")
			return path
		}},
		{name: "another program's version", problem: ProblemForeign, says: "user_version is 7", make: func(t *testing.T, path string) string {
			runSQL(t, path, "create table theirs (x); pragma user_version = 7")
			must(t, os.Chmod(path, 0o600))
			return path
		}},
		{name: "a newer schema", problem: ProblemNewer, says: "knows schema version 1000", make: func(t *testing.T, path string) string {
			written(t, path)
			runSQL(t, path, "pragma user_version = 1000")
			return path
		}},
		{name: "a changed migration", problem: ProblemLedger, says: "0001_runs.sql", make: func(t *testing.T, path string) string {
			written(t, path)
			runSQL(t, path, "update belay_migrations set sha256 = 'other'")
			return path
		}},
		{name: "a version that went back", problem: ProblemLedger, says: "user_version is 0", make: func(t *testing.T, path string) string {
			written(t, path)
			runSQL(t, path, "pragma user_version = 0")
			return path
		}},
		{name: "tables that came first", problem: ProblemSetting, says: "auto_vacuum is 0, not 2", make: func(t *testing.T, path string) string {
			runSQL(t, path, "create table theirs (x)")
			must(t, os.Chmod(path, 0o600))
			return path
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := c.make(t, freshFile(t))
			before, _ := os.ReadFile(path)
			s, err := Open(context.Background(), path, c.opts)
			if err == nil {
				t.Fatal("it was opened", s.Close())
			}
			e, ok := errors.AsType[*OpenError](err)
			if !ok {
				t.Fatalf("%T: %v", err, err)
			}
			if e.Problem != c.problem || !strings.Contains(err.Error(), c.says) || e.Remedy == "" {
				t.Errorf("%s: %v; it must be %s, and say %q and what to do", e.Problem, err, c.problem, c.says)
			}
			if after, _ := os.ReadFile(path); c.problem != ProblemSetting && string(after) != string(before) {
				t.Error("the file was changed")
			}
		})
	}
}

// TestOpenRefusesAReadOnlyMedium: what the file system answers on a read-only medium, and
// what SQLite does, is told as that.
func TestOpenRefusesAReadOnlyMedium(t *testing.T) {
	if !isReadOnlyMedium(&os.PathError{Op: "open", Path: "x", Err: readOnlyError}) {
		t.Error("the operating system's error is not understood")
	}
	e, ok := errors.AsType[*OpenError](cannotAccess("x", &os.PathError{Op: "open", Path: "x", Err: readOnlyError}))
	if !ok || e.Problem != ProblemReadOnly || e.Remedy == "" {
		t.Errorf("%v", e)
	}
	path := freshFile(t)
	must(t, openPath(t, path, Options{}).Close())
	c, err := dial(fileURI(path, "ro", nil))
	must(t, err)
	defer c.close()
	e, ok = errors.AsType[*OpenError]((&Store{path: path}).explain(c.run(context.Background(), "create table x (y)")))
	if !ok || e.Problem != ProblemReadOnly {
		t.Errorf("%v", e)
	}
	// A file that is there already is opened by SQLite alone, which only says that it cannot.
	real := access
	t.Cleanup(func() { access = real })
	access = func(string) error { return readOnlyError }
	c, err = dial(fileURI(path+".absent", "rw", nil))
	if err == nil {
		err = errors.Join(c.run(context.Background(), "select 1 from sqlite_schema"), c.close())
	}
	e, ok = errors.AsType[*OpenError]((&Store{path: path}).explain(err))
	if !ok || e.Problem != ProblemReadOnly {
		t.Errorf("%v", err)
	}
}

// TestOpenLeavesWhatItRefuses: another program's database whose settings cannot be belay's
// has none of belay's tables afterwards.
func TestOpenLeavesWhatItRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"auto_vacuum": "create table theirs (x)",
		"encoding":    "pragma encoding = 'UTF-16le'; pragma auto_vacuum = 2; create table theirs (x)",
	} {
		path := freshFile(t)
		must(t, create(path))
		runSQL(t, path, text)
		before, err := os.ReadFile(path)
		must(t, err)
		_, err = Open(context.Background(), path, Options{})
		if e, ok := errors.AsType[*OpenError](err); !ok || e.Problem != ProblemSetting || e.Setting != name {
			t.Errorf("%s: %v", name, err)
		}
		after, err := os.ReadFile(path)
		must(t, err)
		if !bytes.Equal(before, after) {
			t.Errorf("%s: the file that was refused was changed", name)
		}
	}
}

// TestOpenWaitsForALockWithABound: another process that holds the file delays an open,
// and does not fail it before the busy timeout.
func TestOpenWaitsForALockWithABound(t *testing.T) {
	path := freshFile(t)
	must(t, create(path))
	other, err := dial(fileURI(path, "rw", nil))
	must(t, err)
	defer other.close()
	must(t, other.run(context.Background(), "begin exclusive"))
	_, err = Open(context.Background(), path, Options{BusyTimeout: 20 * time.Millisecond})
	if e, ok := errors.AsType[*OpenError](err); !ok || e.Problem != ProblemBusy || e.Remedy == "" {
		t.Errorf("%v", err)
	}
	released := make(chan error)
	go func() {
		time.Sleep(50 * time.Millisecond)
		released <- other.run(context.Background(), "rollback")
	}()
	s := openPath(t, path, Options{})
	must(t, <-released)
	must(t, s.Close())
}

// TestEveryCharacterOfAPathIsItsOwn: no character of a file's name means anything.
func TestEveryCharacterOfAPathIsItsOwn(t *testing.T) {
	for _, name := range []string{"a?b.db", "a#b.db", "a b.db", "100%.db", "a%41.db", "größe.db", "a&mode=memory.db", "?mode=memory", "a'b.db", "a;b.db", "日本.db"} {
		t.Run(url.PathEscape(name), func(t *testing.T) {
			path := filepath.Join(filepath.Dir(freshFile(t)), name)
			s := openPath(t, Scheme+path, Options{})
			if s.Path() != path {
				t.Errorf("the path is %q, not %q", s.Path(), path)
			}
			publishGraph(t, s)
			backup := path + ".backup"
			must(t, s.Backup(context.Background(), backup))
			var names []string
			entries, err := os.ReadDir(filepath.Dir(path))
			must(t, err)
			for _, e := range entries {
				names = append(names, e.Name())
			}
			want := []string{name, name + "-shm", name + "-wal", name + ".backup"}
			if fmt.Sprint(names) != fmt.Sprint(want) {
				t.Errorf("the directory has %q, not %q", names, want)
			}
		})
	}
}

// TestFilesAreClosedToOthers: whatever the umask, file, log and shared memory are 0600, and
// a directory that is created is 0700.
func TestFilesAreClosedToOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // access lists govern there
	}
	umask(t, 0)
	dir := filepath.Join(filepath.Dir(freshFile(t)), "below", "that")
	s := openPath(t, filepath.Join(dir, "belay.db"), Options{CreateDirectory: true})
	publishGraph(t, s)
	must(t, s.Backup(context.Background(), filepath.Join(dir, "backup.db")))
	for name, want := range map[string]os.FileMode{
		"": 0o700, "..": 0o700, "belay.db": 0o600, "belay.db-wal": 0o600, "belay.db-shm": 0o600, "backup.db": 0o600,
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %#o, not %#o", filepath.Join("below/that", name), info.Mode().Perm(), want)
		}
	}
}

// TestTheLastStoreLeavesOneFile: neither -wal nor -shm stays behind.
func TestTheLastStoreLeavesOneFile(t *testing.T) {
	path := freshFile(t)
	a, b := openPath(t, path, Options{}), openPath(t, path, Options{})
	publishGraph(t, a)
	must(t, a.Close())
	publishGraph(t, b)
	must(t, b.Close())
	entries, err := os.ReadDir(filepath.Dir(path))
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("%d files are left", len(entries))
	}
}

// TestSharedDirectory: with the option a directory may be listed and entered by others.
func TestSharedDirectory(t *testing.T) {
	path := freshFile(t)
	must(t, os.Chmod(filepath.Dir(path), 0o755))
	openPath(t, path, Options{SharedDirectory: true})
}

// TestDamagedOpensForAnAudit: with the option a file whose schema differs is opened.
func TestDamagedOpensForAnAudit(t *testing.T) {
	path := freshFile(t)
	must(t, openPath(t, path, Options{}).Close())
	runSQL(t, path, "drop index belay_runs_ready")
	openPath(t, path, Options{Damaged: true})
}

// TestBadOptionsAreArguments: an option out of range is an argument error.
func TestBadOptionsAreArguments(t *testing.T) {
	for name, opts := range map[string]Options{
		"synchronous": {Synchronous: "off"}, "busy timeout": {BusyTimeout: -1}, "readers": {Readers: -1},
		"group": {MaxGroup: -1}, "mutate timeout": {MutateTimeout: -1}, "checkpoint pages": {CheckpointPages: -1},
	} {
		if _, err := Open(context.Background(), freshFile(t), opts); !errors.Is(err, backend.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSettingsAreReadBack: a setting that did not take refuses the open by its name, on
// either pool.
func TestSettingsAreReadBack(t *testing.T) {
	ctx := context.Background()
	opts := Options{Synchronous: Normal}.withDefaults()
	path := freshFile(t)
	must(t, openPath(t, path, opts).Close())
	for mode, settings := range map[string][]setting{"rw": writerSettings(opts), "ro": readerSettings(opts)} {
		c, err := dial(fileURI(path, mode, nil))
		must(t, err)
		must(t, apply(ctx, c, path, settings))
		for i := range settings {
			wrong := append([]setting(nil), settings...)
			wrong[i].want = "something else"
			e, ok := errors.AsType[*OpenError](readBack(ctx, c, path, wrong))
			if !ok || e.Problem != ProblemSetting || e.Setting != wrong[i].name || e.Got != settings[i].want || e.Remedy == "" {
				t.Errorf("%s: %v", wrong[i].name, e)
			}
		}
		must(t, c.close())
	}
}

// TestReadersCannotWrite: the read pool refuses a write twice over.
func TestReadersCannotWrite(t *testing.T) {
	s := openStore(t, Options{})
	must(t, s.readers.use(context.Background(), func(c *conn) error {
		if err := c.run(context.Background(), "delete from belay_runs"); err == nil {
			t.Error("a reader deleted")
		}
		if err := c.run(context.Background(), "pragma query_only = 0"); err != nil {
			return err
		}
		if err := c.run(context.Background(), "delete from belay_runs"); err == nil {
			t.Error("a reader that is not query_only deleted: it was not opened read-only")
		}
		return c.run(context.Background(), "pragma query_only = 1")
	}))
}

// TestClosedStoresRefuse: operations after Close fail, and closing again is the same answer.
func TestClosedStoresRefuse(t *testing.T) {
	s := openStore(t, Options{})
	must(t, s.Close())
	must(t, s.Close())
	ctx := context.Background()
	_, fetch := s.FetchRun(ctx, backend.System(), "x")
	_, insert := s.InsertRun(ctx, backend.Tenantless(), opening("x"))
	_, subscribe := s.Subscribe(ctx)
	_, now := s.Now(ctx)
	for name, err := range map[string]error{
		"fetch": fetch, "insert": insert, "subscribe": subscribe, "now": now, "backup": s.Backup(ctx, freshFile(t)),
	} {
		if !errors.Is(err, backend.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
