package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
)

// TestH25BackupDoesNotStopTheWriter: while copies are made, inserts go on; each copy is
// closed to others, sound, and has what was answered before it was begun.
func TestH25BackupDoesNotStopTheWriter(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, Options{Synchronous: Normal})
	publishGraph(t, s)
	stop, written := make(chan struct{}), make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				close(written)
				return
			case written <- n:
			default:
			}
			insertRun(t, s, fmt.Sprintf("run-%d", n))
		}
	}()
	dir := filepath.Dir(s.Path())
	for n := range 3 {
		answered := <-written
		path := filepath.Join(dir, fmt.Sprintf("backup-%d.db", n))
		must(t, s.Backup(ctx, path))
		info, err := os.Stat(path)
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("the copy has mode %#o", info.Mode().Perm())
		}
		copied := openPath(t, path, Options{})
		if found := auditAll(t, copied, backend.AuditPolicy{}); len(found) > 0 {
			t.Errorf("%+v", found)
		}
		for id := range answered {
			if !exists(t, copied, fmt.Sprintf("run-%d", id)) {
				t.Errorf("run-%d is not in the copy", id)
			}
		}
	}
	close(stop)
	for range written { // until it has ended
	}
}

// TestABackupReplacesNothing: a file that is there is not written over.
func TestABackupReplacesNothing(t *testing.T) {
	s := openStore(t, Options{})
	path := filepath.Join(filepath.Dir(s.Path()), "there")
	must(t, os.WriteFile(path, []byte("mine"), 0o600))
	if err := s.Backup(context.Background(), path); !errors.Is(err, ErrBackupExists) {
		t.Errorf("%v", err)
	}
	if err := s.Backup(context.Background(), s.Path()); !errors.Is(err, ErrBackupExists) {
		t.Errorf("onto itself: %v", err)
	}
	if raw, _ := os.ReadFile(path); string(raw) != "mine" {
		t.Error("the file was changed")
	}
}

// TestOneOfSeveralBackupsToOneNameHasIt: the others say so, and leave nothing behind.
func TestOneOfSeveralBackupsToOneNameHasIt(t *testing.T) {
	s := soundStore(t)
	path := s.Path() + ".backup"
	errs := make([]error, 4)
	inParallel(len(errs), func(i int) { errs[i] = s.Backup(context.Background(), path) })
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		} else if !errors.Is(err, ErrBackupExists) {
			t.Error(err)
		}
	}
	left, err := filepath.Glob(path + "*")
	must(t, err)
	if made != 1 || len(left) != 1 {
		t.Errorf("%d backups were made, %q is there", made, left)
	}
	must(t, verifyBackup(context.Background(), path))
}

// TestABackupRemovesWhatAKilledOneLeft: and nothing that may be somebody's.
func TestABackupRemovesWhatAKilledOneLeft(t *testing.T) {
	s := openStore(t, Options{})
	path := s.Path() + ".backup"
	gone := exec.Command(os.Args[0], "-test.run=^$")
	must(t, gone.Run())
	prefix, err := temporaryPrefix(path)
	must(t, err)
	long := time.Now().Add(-2 * staleAfter)
	stays := map[string]bool{filepath.Base(path): true, "belay.db": true, "belay.db-wal": true, "belay.db-shm": true}
	for _, c := range []struct {
		name  string
		at    time.Time
		stays bool
	}{
		{fmt.Sprintf("%s%d.1.tmp", prefix, gone.Process.Pid), long, false},
		{fmt.Sprintf("%s%d.2.tmp", prefix, gone.Process.Pid), time.Now(), true},
		{fmt.Sprintf("%s%d.3.tmp", prefix, os.Getpid()), long, true},
		{fmt.Sprintf("belay.db.backup.elsewhere-%d.4.tmp", gone.Process.Pid), long, true},
		{fmt.Sprintf("other.%s%d.5.tmp", prefix, gone.Process.Pid), long, true},
		{prefix + "notes.6.tmp", long, true},
		{fmt.Sprintf("%s%d.7.txt", prefix, gone.Process.Pid), long, true},
	} {
		full := filepath.Join(filepath.Dir(path), c.name)
		must(t, os.WriteFile(full, nil, 0o600))
		must(t, os.Chtimes(full, c.at, c.at))
		if c.stays {
			stays[c.name] = true
		}
	}
	must(t, s.Backup(context.Background(), path))
	entries, err := os.ReadDir(filepath.Dir(path))
	must(t, err)
	for _, e := range entries {
		if !stays[e.Name()] {
			t.Errorf("%s is left", e.Name())
		}
		delete(stays, e.Name())
	}
	for name := range stays {
		t.Errorf("%s was removed", name)
	}
}

// TestAnUnverifiedCopyIsNoBackup: a copy that is not good fails, says so, and leaves
// nothing behind.
func TestAnUnverifiedCopyIsNoBackup(t *testing.T) {
	path := freshFile(t)
	must(t, openPath(t, path, Options{}).Close())
	runSQL(t, path, "drop index belay_runs_ready")
	s := openPath(t, path, Options{Damaged: true})
	err := s.Backup(context.Background(), path+".backup")
	if e, ok := errors.AsType[*OpenError](err); !ok || e.Problem != ProblemDamaged {
		t.Errorf("%v", err)
	}
	left, globbed := filepath.Glob(path + ".backup*")
	must(t, globbed)
	if len(left) > 0 {
		t.Errorf("%q is left", left)
	}
}

// TestABackupIntoNowhere: says what the operating system says.
func TestABackupIntoNowhere(t *testing.T) {
	s := openStore(t, Options{})
	if err := s.Backup(context.Background(), filepath.Join(s.Path()+".d", "backup.db")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestVerifyingReadsTheWholeCopy: damage that no schema shows is found.
func TestVerifyingReadsTheWholeCopy(t *testing.T) {
	path := soundStore(t).Path()
	s := openPath(t, path, Options{})
	backup := path + ".backup"
	must(t, s.Backup(context.Background(), backup))
	must(t, verifyBackup(context.Background(), backup))
	spoilIndex(t, backup)
	if err := verifyBackup(context.Background(), backup); err == nil {
		t.Error("a spoilt index was not found")
	}
}
