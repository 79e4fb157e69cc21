package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	code "modernc.org/sqlite/lib"

	"github.com/belay-run/belay/backend"
)

// Store is the SQLite backend. It is safe for concurrent use, and several stores, in
// one process or in many, may be open on one file.
type Store struct {
	path    string
	key     string // the same for every way to name the file
	opts    Options
	writer  *writer
	readers *readers
	common  *shared
	clock   clock
	closed  atomic.Bool
	closing sync.Once
	closeOf error
}

var (
	_ backend.Store          = (*Store)(nil)
	_ backend.Batches        = (*Store)(nil)
	_ backend.ClaimDocuments = (*Store)(nil)
	_ backend.Wakes          = (*Store)(nil)
	_ backend.Clock          = (*Store)(nil)
	_ backend.Retention      = (*Store)(nil)
	_ backend.Auditor        = (*Store)(nil)
)

// Open opens the store in the file that a path or a DSN (see Path) names, creates the
// file when there is none, and brings its schema up to date. A refusal is an *OpenError,
// which says what to do, or *backend.ArgumentError for a bad option.
func Open(ctx context.Context, dsn string, opts Options) (*Store, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	path, err := Path(dsn)
	if err != nil {
		return nil, err
	}
	real := resolve(path)
	if err := prepareFile(real, opts); err != nil {
		return nil, err
	}
	s := &Store{path: path, key: real, opts: opts}
	s.common = join(s.key)
	s.clock = clock{now: opts.Now, floor: &s.common.floor}
	if err := s.connect(ctx); err != nil {
		leave(s.key)
		return nil, s.explain(err)
	}
	return s, nil
}

// resolve follows links as far as there is something at their end.
func resolve(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

func (s *Store) connect(ctx context.Context) error {
	w, err := s.dialWriter(ctx)
	if err != nil {
		return err
	}
	s.readers = newReaders(s.opts.Readers, s.dialReader)
	// The first reader is opened now, so that what its settings refuse is known now.
	if err := s.readers.use(ctx, func(*conn) error { return nil }); err != nil {
		return errors.Join(err, w.close())
	}
	opened, err := os.Stat(s.key)
	if err != nil {
		return errors.Join(err, s.readers.close(), w.close())
	}
	s.writer = startWriter(w, s.opts, s.common.hub.broadcast,
		func() error { return inPlace(s.key, opened) }, newWAL(s.key, s.opts.CheckpointPages, s.readers))
	return nil
}

// inPlace fails when the file that was opened is no longer the one under its name: what is
// written to a deleted file nobody finds again, so it must not be answered as stored.
func inPlace(path string, opened os.FileInfo) error {
	now, err := os.Stat(path)
	if (err == nil && os.SameFile(now, opened)) || (err != nil && !errors.Is(err, fs.ErrNotExist)) {
		return nil
	}
	return &backend.InfrastructureError{
		Op: "commit", Nature: backend.Permanent,
		Err: fmt.Errorf("%s was deleted, moved or replaced while it was open: put it back, and restart what uses it", path),
	}
}

// Path is the absolute path of the store's file.
func (s *Store) Path() string { return s.path }

func (s *Store) dialWriter(ctx context.Context) (*conn, error) {
	migrations, err := loadMigrations()
	if err != nil {
		return nil, err
	}
	c, err := dial(fileURI(s.path, "rw", nil))
	if err != nil {
		return nil, err
	}
	if err := s.setUp(ctx, c, migrations); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// setUp refuses a file that is not to be touched, then migrates it, then sets what a
// writer needs. Whatever another process locks meanwhile is waited for.
func (s *Store) setUp(ctx context.Context, c *conn, migrations []migration) error {
	if err := c.run(ctx, flushing+"; pragma busy_timeout = "+milliseconds(s.opts.BusyTimeout)); err != nil {
		return err
	}
	if _, err := readLedger(ctx, c, s.path, migrations); err != nil {
		return err
	}
	if err := migrate(ctx, c, s.path, migrations, s.clock.read(), s.opts.BusyTimeout); err != nil {
		return err
	}
	if err := s.enterWAL(ctx, c); err != nil {
		return err
	}
	if !s.opts.Damaged {
		if err := checkSchema(ctx, c, s.path); err != nil {
			return err
		}
	}
	return apply(ctx, c, s.path, writerSettings(s.opts))
}

// enterWAL changes the journal mode, for which SQLite wants the file for itself and does
// not wait by its own busy timeout.
func (s *Store) enterWAL(ctx context.Context, c *conn) error {
	var wait backoff
	for deadline := time.Now().Add(s.opts.BusyTimeout); ; {
		err := c.run(ctx, "pragma journal_mode = wal")
		if err == nil || !isBusy(err) || time.Now().After(deadline) {
			return err
		}
		if wait.pause(ctx.Done()) != nil {
			return context.Cause(ctx)
		}
	}
}

func (s *Store) dialReader(ctx context.Context) (*conn, error) {
	c, err := dial(fileURI(s.path, "ro", nil))
	if err != nil {
		return nil, err
	}
	if err := apply(ctx, c, s.path, readerSettings(s.opts)); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// explain makes an *OpenError of what failed while opening.
func (s *Store) explain(err error) error {
	if _, ok := errors.AsType[*OpenError](err); ok {
		return err
	}
	e := &OpenError{Path: s.path, Problem: ProblemSystem, Err: err}
	switch primary(err) {
	case code.SQLITE_NOTADB:
		e.Problem, e.Remedy = ProblemNotDatabase, "name another file; this one was not touched"
	case code.SQLITE_CORRUPT:
		e.Problem, e.Remedy = ProblemDamaged, "restore a backup, or recover what is left with the .recover command of the sqlite3 shell"
	case code.SQLITE_READONLY:
		return readOnly(s.path, err)
	case code.SQLITE_BUSY, code.SQLITE_PROTOCOL, code.SQLITE_LOCKED:
		e.Problem, e.Remedy = ProblemBusy, "end the program that holds it, or raise Options.BusyTimeout"
	case code.SQLITE_PERM, code.SQLITE_AUTH, code.SQLITE_CANTOPEN:
		if cannot := access(s.path); isReadOnlyMedium(cannot) {
			return readOnly(s.path, err)
		}
		e.Problem, e.Remedy = ProblemAccess, "run as the user who owns the file and its directory"
	case code.SQLITE_FULL, code.SQLITE_IOERR:
		e.Remedy = "the disk may be full or failing: make room, or look at its log"
	}
	return e
}

// Features declares everything: X8, for which there is no field, is WithTx.
func (s *Store) Features() backend.Features {
	return backend.Features{
		StartClaimed: true, Batches: s, ClaimDocuments: s, ClaimFilter: true, Wakes: s, Clock: s, Retention: s, Audit: s, OwnerCap: true,
	}
}

// Close answers what is queued with ErrClosed, finishes the group being written and
// closes the file. The last store on a file leaves neither -wal nor -shm behind.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.closed.Store(true)
		s.writer.stop()
		s.common.hub.leaveAll(s)
		leave(s.key)
		s.closeOf = errors.Join(s.readers.close(), s.writer.conn.close())
	})
	return s.closeOf
}

func (s *Store) isClosed() bool { return s.closed.Load() }

// Now is the store's clock (feature X6). It never goes back within one store.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if s.isClosed() {
		return time.Time{}, backend.ErrClosed
	}
	return s.clock.read(), ctx.Err()
}

// micros is an instant as it is stored, and null for none.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// instant reads a stored instant; null is none.
func (r row) instant(i int) time.Time {
	n, ok := r[i].(int64)
	if !ok {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

// orNull is null for the empty text.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
