package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
)

// ErrBackupExists: a backup never replaces a file.
var ErrBackupExists = errors.New("belay: the backup's file exists: name another, or move it away first")

// Backup writes a copy of the store, as it is at one instant, to a file that does not
// exist yet, while writers go on (hazard H25). The copy is made beside its final name, mode
// 0600, read through and compared with the schema of this build, flushed to the disk, and
// only then renamed: a file under that name is a verified backup. Afterwards it is
// opened like any other store; there is nothing else to restoring.
func (s *Store) Backup(ctx context.Context, path string) (err error) {
	if s.isClosed() {
		return backend.ErrClosed
	}
	if path, err = Path(path); err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%w (%s)", ErrBackupExists, path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("belay: back up: %w", err)
	}
	if err := removeStale(path); err != nil {
		return fmt.Errorf("belay: back up: %w", err)
	}
	temporary, err := temporaryFile(path)
	if err != nil {
		return fmt.Errorf("belay: back up: %w", err)
	}
	if err := s.finishBackup(ctx, temporary, path); err != nil {
		return fmt.Errorf("belay: back up to %s: %w", path, errors.Join(err, os.Remove(temporary)))
	}
	// From here on there is a backup, and nothing to remove.
	if err := syncPath(filepath.Dir(path)); err != nil {
		return fmt.Errorf("belay: back up: %s is written, but may be gone after a power loss: %w", path, err)
	}
	return nil
}

// finishBackup makes the copy and gives it its name.
func (s *Store) finishBackup(ctx context.Context, temporary, path string) error {
	if err := s.copyTo(ctx, temporary); err != nil {
		return err
	}
	if err := verifyBackup(ctx, temporary); err != nil {
		return fmt.Errorf("the copy is not good, and was removed: %w", err)
	}
	if err := syncPath(temporary); err != nil {
		return err
	}
	err := renameNew(temporary, path)
	if errors.Is(err, fs.ErrExist) {
		return ErrBackupExists
	}
	return err
}

// staleAfter is how long nobody must have written to a temporary file of a process that is gone
// before it is removed: process ids are used again, and are not the same in every container.
const staleAfter = time.Hour

// temporaryPrefix begins the names of the temporary files of this host for a backup to path; the
// process and a random number follow.
func temporaryPrefix(path string) (string, error) {
	host, err := os.Hostname()
	return filepath.Base(path) + "." + url.PathEscape(host) + "-", err
}

// temporaryFile creates an empty file, mode 0600, beside path.
func temporaryFile(path string) (string, error) {
	prefix, err := temporaryPrefix(path)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(path), fmt.Sprintf("%s%d.*.tmp", prefix, os.Getpid()))
	if err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

// removeStale removes what backups to path have left behind whose process is gone.
func removeStale(path string) error {
	prefix, err := temporaryPrefix(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), prefix)
		process, random, more := strings.Cut(rest, ".")
		pid, notNumber := strconv.Atoi(process)
		if !ours || !more || notNumber != nil || !strings.HasSuffix(random, ".tmp") || isAlive(pid) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // another backup has removed it
		}
		if err == nil && time.Since(info.ModTime()) > staleAfter {
			err = os.Remove(filepath.Join(dir, e.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// copyTo runs on a connection of its own, so that no reader and no writer waits for it.
func (s *Store) copyTo(ctx context.Context, path string) (err error) {
	c, err := dial(fileURI(s.path, "ro", nil))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.run(ctx, "pragma busy_timeout = "+milliseconds(s.opts.BusyTimeout)); err != nil {
		return err
	}
	return c.run(ctx, "vacuum into '"+strings.ReplaceAll(path, "'", "''")+"'")
}

// verifyBackup reads the whole copy and compares its schema.
func verifyBackup(ctx context.Context, path string) (err error) {
	migrations, err := loadMigrations()
	if err != nil {
		return err
	}
	c, err := dial(fileURI(path, "ro", nil))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	version, err := checkLedger(ctx, c, path, migrations)
	if err != nil {
		return err
	}
	if last := migrations[len(migrations)-1].number; version < last {
		return fmt.Errorf("its schema version is %d, not %d", version, last)
	}
	if err := checkSchema(ctx, c, path); err != nil {
		return err
	}
	return checkIntegrity(ctx, c)
}

// checkIntegrity is SQLite's own check of pages, indexes and constraints, and of the
// references between tables.
func checkIntegrity(ctx context.Context, c *conn) error {
	var problems []error
	err := c.read(ctx, "pragma integrity_check", func(r row) error {
		if r.text(0) != "ok" {
			problems = append(problems, errors.New(r.text(0)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = c.read(ctx, "pragma foreign_key_check", func(r row) error {
		problems = append(problems, fmt.Errorf("a row of %s has lost its %s", r.text(0), r.text(2)))
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(problems...)
}
