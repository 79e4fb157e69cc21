package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/backend/sqlite"
)

// location is where a command's runs are kept: the flag --db, else BELAY_DB, else a file under the
// user's data directory.
type location struct {
	terminal *terminal
	flag     string
}

func newLocation(t *terminal, cmd *cobra.Command) *location {
	l := &location{terminal: t}
	cmd.PersistentFlags().StringVar(&l.flag, "db", "",
		"where runs are kept: sqlite:FILE, postgres://USER@HOST/DATABASE, or memory: (until the command ends); default $BELAY_DB, else a file under the user's data directory")
	return l
}

// dsn is where the runs are; own says that nobody named the place.
func (l *location) dsn() (dsn string, own bool, err error) {
	switch {
	case l.flag != "":
		return l.flag, false, nil
	case l.terminal.getenv("BELAY_DB") != "":
		return l.terminal.getenv("BELAY_DB"), false, nil
	}
	dir, err := dataDirectory(l.terminal.getenv)
	if err != nil {
		return "", false, usage(fmt.Errorf("there is no place to keep runs in: %w", err), "name one: --db sqlite:FILE")
	}
	return sqlite.Scheme + filepath.Join(dir, "belay", "belay.db"), true, nil
}

// dataDirectory is where programs keep what belongs to the user.
func dataDirectory(getenv func(string) string) (string, error) {
	if dir := getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	if runtime.GOOS == "windows" {
		if dir := getenv("LOCALAPPDATA"); filepath.IsAbs(dir) {
			return dir, nil
		}
		return "", errors.New("LOCALAPPDATA is not set")
	}
	home := getenv("HOME")
	switch {
	case !filepath.IsAbs(home):
		return "", errors.New("HOME is not set")
	case runtime.GOOS == "darwin":
		return filepath.Join(home, "Library", "Application Support"), nil
	}
	return filepath.Join(home, ".local", "share"), nil
}

// again is a command line that uses the same place.
func (l *location) again(words ...string) string {
	if l.flag != "" {
		words = append(words, "--db", shown(l.flag))
	}
	quoted := []string{"belay"}
	for _, w := range words {
		quoted = append(quoted, quote(w))
	}
	return strings.Join(quoted, " ")
}

// quote writes a word as a POSIX shell reads it.
func quote(word string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_./:=@,+%", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// store is an open store, and what a command may expect of it beyond the contract.
type store struct {
	backend.Store
	place *location
	// transient: what is in it is gone when the command ends.
	transient bool
	// file is set when it is in a file.
	file *sqlite.Store
	// finder looks beginnings of ids up; nil: the list has to be gone through.
	finder finder
	// notes tell which process has a claim; nil: nobody keeps that.
	notes notes
}

// finder lists ids that begin with a text, in their order, at most limit of them.
type finder interface {
	FindRuns(ctx context.Context, scope backend.Scope, prefix string, limit int) ([]string, error)
}

// notes is where it is kept which process drives a run.
type notes interface {
	NoteDriver(ctx context.Context, id string, d sqlite.Driver) error
	DriverOf(ctx context.Context, id string) (sqlite.Driver, error)
}

// now is the store's clock, by which it is judged what is due.
func (s *store) now(ctx context.Context) (time.Time, error) {
	if clock := s.Features().Clock; clock != nil {
		return clock.Now(ctx)
	}
	return s.place.terminal.now(), nil
}

// opening is how a store is opened.
type opening struct {
	create  bool // when there is none
	damaged bool // also a file that is
	logger  *slog.Logger
}

// create opens the store, and makes it when there is none.
func (l *location) create(ctx context.Context) (*store, error) {
	return l.open(ctx, opening{create: true})
}

// existing opens the store for a look at runs that are there.
func (l *location) existing(ctx context.Context) (*store, error) {
	return l.open(ctx, opening{})
}

func (l *location) open(ctx context.Context, how opening) (*store, error) {
	dsn, own, err := l.dsn()
	if err != nil {
		return nil, err
	}
	switch {
	case dsn == memoryDSN:
		return &store{Store: memory.New(memory.Options{}), place: l, transient: true}, nil
	case isServer(dsn):
		return l.openServer(ctx, dsn, how)
	}
	return l.openFile(ctx, dsn, own, how)
}

// memoryDSN names a store that nothing outlives.
const memoryDSN = "memory:"

// otherDSN makes a file's DSN of a path, and refuses backends that are not known.
func otherDSN(dsn, known string) (string, error) {
	switch {
	case filepath.IsAbs(dsn) || !strings.Contains(dsn, ":"):
		return sqlite.Scheme + dsn, nil // a path
	case !strings.HasPrefix(dsn, sqlite.Scheme):
		scheme, _, _ := strings.Cut(dsn, ":")
		return "", usage(fmt.Errorf("no backend is known for %q (of --db or BELAY_DB)", scheme), "use "+known)
	}
	return dsn, nil
}

func (l *location) openFile(ctx context.Context, dsn string, own bool, how opening) (*store, error) {
	dsn, err := otherDSN(dsn, "sqlite:FILE, postgres://HOST/DATABASE or memory:")
	if err != nil {
		return nil, err
	}
	path, err := sqlite.Path(dsn)
	if err != nil {
		return nil, forCommandLine(err)
	}
	_, err = os.Stat(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if _, notLinked := os.Readlink(path); missing && !how.create && notLinked != nil { // a link to nothing is refused below
		return nil, usage(fmt.Errorf("no runs are kept in %s: there is no such file", path), "name another with --db, or start a run: belay run GRAPH")
	}
	lite, err := sqlite.Open(ctx, dsn, sqlite.Options{CreateDirectory: own, SharedDirectory: !own, Damaged: how.damaged})
	if err != nil {
		return nil, forCommandLine(err)
	}
	if missing && own {
		l.terminal.say("runs are kept in %s (elsewhere with --db or BELAY_DB)", path)
	}
	return &store{Store: &noting{Store: lite, self: thisProcess()}, place: l, file: lite, finder: lite, notes: lite}, nil
}

// inFile refuses what needs a file.
func (s *store) inFile(what string) (*sqlite.Store, error) {
	switch {
	case s.file != nil:
		return s.file, nil
	case s.transient:
		return nil, usage(fmt.Errorf("%s has no file to %s", memoryDSN, what), "name one: --db sqlite:FILE")
	}
	return nil, usage(fmt.Errorf("belay does not %s a PostgreSQL database", what),
		"use the server's own tools, as in: pg_dump -n "+quote(s.schema())+", or its continuous archiving")
}

// forCommandLine words a refusal to open a file for somebody who cannot set options.
func forCommandLine(err error) error {
	e, ok := errors.AsType[*sqlite.OpenError](err)
	if !ok {
		return err
	}
	refused := *e
	remedy := withoutOptions(e.Remedy)
	refused.Remedy = ""
	if info, err := os.Stat(filepath.Dir(e.Path)); e.Problem == sqlite.ProblemPermissions && err == nil && info.Mode()&fs.ModeSticky != 0 {
		remedy = "that directory is everyone's: name a file in one of your own"
	}
	code := exitInfrastructure
	switch e.Problem {
	case sqlite.ProblemPath, sqlite.ProblemNoDirectory, sqlite.ProblemNotDatabase, sqlite.ProblemForeign,
		sqlite.ProblemDanglingLink, sqlite.ProblemHardLinks:
		code = exitUsage
	}
	return &exitError{code, &refused, remedy}
}

// withoutOptions is a remedy without what only a program can do.
func withoutOptions(remedy string) string {
	for _, option := range []string{", or set Options.", ", or raise Options."} {
		remedy, _, _ = strings.Cut(remedy, option)
	}
	return remedy
}
