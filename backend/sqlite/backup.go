package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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
	temporary, err := temporaryFile(path)
	if err != nil {
		return fmt.Errorf("belay: back up: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("belay: back up to %s: %w", path, errors.Join(err, os.Remove(temporary)))
		}
	}()
	if err := s.copyTo(ctx, temporary); err != nil {
		return err
	}
	if err := verifyBackup(ctx, temporary); err != nil {
		return fmt.Errorf("the copy is not good, and was removed: %w", err)
	}
	if err := syncPath(temporary); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncPath(filepath.Dir(path))
}

// temporaryFile creates an empty file, mode 0600, beside path.
func temporaryFile(path string) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return "", err
	}
	return f.Name(), f.Close()
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
