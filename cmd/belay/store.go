package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

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
		"where runs are kept: sqlite:FILE, or memory: (until the command ends); default $BELAY_DB, else a file under the user's data directory")
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
		words = append(words, "--db", l.flag)
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

// store is an open store. lite is nil when it is not in a file.
type store struct {
	backend.Store
	place *location
	lite  *sqlite.Store
}

// create opens the store, and makes it when there is none.
func (l *location) create(ctx context.Context) (*store, error) {
	return l.open(ctx, true, sqlite.Options{})
}

// existing opens the store for a look at runs that are there.
func (l *location) existing(ctx context.Context) (*store, error) {
	return l.open(ctx, false, sqlite.Options{})
}

func (l *location) open(ctx context.Context, create bool, opts sqlite.Options) (*store, error) {
	dsn, own, err := l.dsn()
	if err != nil {
		return nil, err
	}
	switch {
	case dsn == "memory:":
		return &store{Store: memory.New(memory.Options{}), place: l}, nil
	case filepath.IsAbs(dsn) || !strings.Contains(dsn, ":"):
		dsn = sqlite.Scheme + dsn // a path
	case !strings.HasPrefix(dsn, sqlite.Scheme):
		scheme, _, _ := strings.Cut(dsn, ":")
		return nil, usage(fmt.Errorf("no backend is known for %q (of --db or BELAY_DB)", scheme), "use sqlite:FILE or memory:")
	}
	path, err := sqlite.Path(dsn)
	if err != nil {
		return nil, forCommandLine(err)
	}
	_, err = os.Stat(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing && !create {
		return nil, usage(fmt.Errorf("no runs are kept in %s: there is no such file", path), "name another with --db, or start a run: belay run GRAPH")
	}
	opts.CreateDirectory, opts.SharedDirectory = own, !own
	lite, err := sqlite.Open(ctx, dsn, opts)
	if err != nil {
		return nil, forCommandLine(err)
	}
	if missing && own {
		l.terminal.say("runs are kept in %s (elsewhere with --db or BELAY_DB)", path)
	}
	return &store{Store: &noting{Store: lite, self: thisProcess()}, place: l, lite: lite}, nil
}

// inFile refuses what needs a file.
func (s *store) inFile(what string) (*sqlite.Store, error) {
	if s.lite == nil {
		return nil, usage(fmt.Errorf("memory: has no file to %s", what), "name one: --db sqlite:FILE")
	}
	return s.lite, nil
}

// forCommandLine words a refusal to open a file for somebody who cannot set options.
func forCommandLine(err error) error {
	e, ok := errors.AsType[*sqlite.OpenError](err)
	if !ok {
		return err
	}
	refused := *e
	remedy := e.Remedy
	for _, option := range []string{", or set Options.", ", or raise Options."} {
		remedy, _, _ = strings.Cut(remedy, option)
	}
	refused.Remedy = ""
	if info, err := os.Stat(filepath.Dir(e.Path)); e.Problem == sqlite.ProblemPermissions && err == nil && info.Mode()&fs.ModeSticky != 0 {
		remedy = "that directory is everyone's: name a file in one of your own"
	}
	code := exitInfrastructure
	switch e.Problem {
	case sqlite.ProblemPath, sqlite.ProblemNoDirectory, sqlite.ProblemNotDatabase, sqlite.ProblemForeign:
		code = exitUsage
	}
	return &exitError{code, &refused, remedy}
}
