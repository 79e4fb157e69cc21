package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/internal/pgtest"
)

// TestTranscripts runs command lines and compares what they print, and their exit codes, with
// what testdata says. The commands of one file share a data directory. Words are separated by
// spaces; there is no quoting.
//
//	belay [interrupt=WORD]    a command line; it is interrupted when it says the word
//	belay expire=ID when=WORD a command line; the run's claim is aged by a minute when it says the word
//	hold run=ID by=WHO age=D  claims the run, as a process that is gone, living, elsewhere or unknown
//	sql                       changes the database behind belay's back
//	file path=P mode=M        writes a file below DATA
//	link path=P to=Q          makes a symbolic link below DATA, to another place there
//
// RUN1 is the first run that was seen in a file, RUN2 the next; DATA is the data directory; DSN is a
// PostgreSQL database with a schema of the file's own, SCHEMA, which the files that begin with
// server use;
// INSTANT, SPAN and PID stand for what is another one each time.
func TestTranscripts(t *testing.T) {
	for _, name := range []string{"graph", "run", "runs", "migrate", "held", "store", "server"} {
		t.Run(name, func(t *testing.T) {
			s := &script{data: t.TempDir()}
			if strings.HasPrefix(name, "server") {
				s.server = testServer(t)
			}
			datadriven.RunTest(t, "testdata/"+name, func(t *testing.T, d *datadriven.TestData) string {
				s.t = t
				switch d.Cmd {
				case "belay":
					var word, expire string
					d.MaybeScanArgs(t, "interrupt", &word)
					if d.MaybeScanArgs(t, "expire", &expire) {
						d.ScanArgs(t, "when", &word)
					}
					return s.run(d.Input, word, expire)
				case "hold":
					return s.hold(d)
				case "file":
					return s.write(d)
				case "link":
					return s.link(d)
				case "sql":
					return s.sql(d.Input)
				}
				d.Fatalf(t, "unknown command %s", d.Cmd)
				return ""
			})
		})
	}
}

// script is the state of one transcript.
type script struct {
	t      *testing.T
	data   string
	server server // zero: a file
	runs   []string
}

// testServer is a PostgreSQL database, with a schema of the test's own in which nothing is yet.
func testServer(t *testing.T) server { t.Helper(); return testServerOn(t, pgtest.DSN(t)) }

func testServerOn(t *testing.T, dsn string) server {
	t.Helper()
	join := "?"
	if strings.Contains(dsn, "?") {
		join = "&"
	}
	s, err := parseServer(dsn + join + schemaParameter + "=" + pgtest.SchemaOn(t, dsn))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// db is what --db says for it.
func (s server) db() string {
	if strings.Contains(s.dsn, "?") {
		return s.dsn + "&" + schemaParameter + "=" + s.schema
	}
	return s.dsn + "?" + schemaParameter + "=" + s.schema
}

// exec executes a statement in the schema.
func (s server) exec(t *testing.T, statement string) int64 {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "set search_path to "+s.schema); err != nil {
		t.Fatal(err)
	}
	tag, err := conn.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	return tag.RowsAffected()
}

// listener is a terminal on which something happens when a word is said first.
type listener struct {
	bytes.Buffer
	word string
	then func()
}

func (l *listener) Write(p []byte) (int, error) {
	if l.word != "" && bytes.Contains(p, []byte(l.word)) {
		l.word = ""
		l.then()
	}
	return l.Buffer.Write(p)
}

// run executes a command line. At the word it is interrupted, or with expire that run's claim ages.
func (s *script) run(line, word, expire string) string {
	s.t.Helper()
	line = strings.ReplaceAll(line, "DATA", s.data)
	env := map[string]string{"XDG_DATA_HOME": s.data}
	if s.server.dsn != "" {
		line = strings.ReplaceAll(line, "DSN", s.server.db())
		env["BELAY_DB"] = s.server.db()
	}
	for i, id := range s.runs {
		line = strings.ReplaceAll(line, fmt.Sprintf("RUN%d", i+1), id)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out bytes.Buffer
	errs := listener{word: word, then: cancel}
	if expire != "" {
		errs.then = func() { s.age(expire, claimTTL) }
	}
	code := execute(ctx, strings.Split(line, " "), &terminal{
		in: strings.NewReader(`{"name":"Grace"}`), out: &out, err: &errs, now: time.Now,
		getenv: func(name string) string { return env[name] },
	})
	var b strings.Builder
	if out.Len() > 0 {
		fmt.Fprintf(&b, "%s\n", strings.TrimRight(out.String(), "\n"))
	}
	for line := range strings.Lines(errs.String()) {
		fmt.Fprintf(&b, "2> %s\n", strings.TrimRight(line, "\n"))
	}
	fmt.Fprintf(&b, "exit %d\n", code)
	return s.mask(b.String())
}

func (s *script) file() string { return filepath.Join(s.data, "belay", "belay.db") }

func (s *script) hold(d *datadriven.TestData) string {
	var id, who, age string
	d.ScanArgs(s.t, "run", &id)
	d.ScanArgs(s.t, "by", &who)
	d.ScanArgs(s.t, "age", &age)
	ago, err := time.ParseDuration(age)
	if err != nil {
		s.t.Fatal(err)
	}
	var store backend.Store
	var lite *sqlite.Store
	if s.server.dsn != "" {
		store, err = postgres.Open(s.t.Context(), s.server.dsn, postgres.Options{Schema: s.server.schema, VerifyOnly: true})
	} else {
		lite, err = sqlite.Open(s.t.Context(), s.file(), sqlite.Options{})
		store = lite
	}
	if err != nil {
		s.t.Fatal(err)
	}
	defer store.Close()
	batch, err := store.ClaimDue(s.t.Context(), claim.Policy{
		TTL: claimTTL, Limit: 1, MaxAttempts: maxAttempts, Filter: claim.Filter{Runs: []string{id}},
	})
	if err != nil || len(batch.Leases) != 1 {
		s.t.Fatalf("%v, %v", batch, err)
	}
	driver := thisProcess()
	switch who {
	case "gone":
		driver.pid = gonePID(s.t)
	case "living":
		driver.pid = os.Getppid()
	case "elsewhere":
		driver.host = "elsewhere"
	}
	if who != "unknown" {
		if err := lite.NoteDriver(s.t.Context(), id, driver.note(batch.Leases[0].Token)); err != nil {
			s.t.Fatal(err)
		}
	}
	return s.age(id, ago)
}

// age makes a run's claim older.
func (s *script) age(id string, by time.Duration) string {
	if s.server.dsn != "" {
		return s.sql(fmt.Sprintf("update runs set claimed_at = claimed_at - interval '%d microseconds' where id = '%s'", by.Microseconds(), id))
	}
	return s.sql(fmt.Sprintf("update belay_runs set claimed_at = claimed_at - %d where id = '%s'", by.Microseconds(), id))
}

func (s *script) write(d *datadriven.TestData) string {
	var path, mode string
	d.ScanArgs(s.t, "path", &path)
	d.ScanArgs(s.t, "mode", &mode)
	bits, err := strconv.ParseUint(mode, 8, 9)
	if err != nil {
		s.t.Fatal(err)
	}
	path = filepath.Join(s.data, path)
	if err := errors.Join(os.WriteFile(path, []byte(d.Input), 0o600), os.Chmod(path, os.FileMode(bits))); err != nil {
		s.t.Fatal(err)
	}
	return ""
}

func (s *script) link(d *datadriven.TestData) string {
	var path, to string
	d.ScanArgs(s.t, "path", &path)
	d.ScanArgs(s.t, "to", &to)
	if err := os.Symlink(filepath.Join(s.data, to), filepath.Join(s.data, path)); err != nil {
		s.t.Fatal(err)
	}
	return ""
}

// gonePID is the number of a process that has ended.
func gonePID(t *testing.T) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func (s *script) sql(statement string) string {
	if s.server.dsn != "" {
		return count(int(s.server.exec(s.t, statement)), "row") + "\n"
	}
	db, err := sql.Open("sqlite", s.file())
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(s.t.Context(), "pragma ignore_check_constraints = 1"); err != nil {
		s.t.Fatal(err)
	}
	done, err := db.ExecContext(s.t.Context(), statement)
	if err != nil {
		s.t.Fatal(err)
	}
	n, err := done.RowsAffected()
	if err != nil {
		s.t.Fatal(err)
	}
	return count(int(n), "row") + "\n"
}

var (
	ulid    = regexp.MustCompile(`\b01[0-9A-HJKMNP-TV-Z]{24}\b`)
	instant = regexp.MustCompile(`\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	number  = regexp.MustCompile(`process \d+`)
	size    = regexp.MustCompile(`("bytes":)\d+|\d+( bytes, verified)`)
	away    = regexp.MustCompile(`\((in )?([\dhms]+|\d+ days)( ago)?\)`)
)

// mask replaces what is another one each time. Padding behind what is masked stays as it was, since
// ids and instants have one length.
func (s *script) mask(text string) string {
	text = ulid.ReplaceAllStringFunc(text, func(id string) string {
		for i, known := range s.runs {
			if known == id {
				return "RUN" + strconv.Itoa(i+1)
			}
		}
		s.runs = append(s.runs, id)
		return "RUN" + strconv.Itoa(len(s.runs))
	})
	text = strings.ReplaceAll(text, filepath.ToSlash(s.data), "DATA")
	if s.server.dsn != "" {
		text = strings.ReplaceAll(text, s.server.shown, "DSN")
		text = strings.ReplaceAll(text, s.server.schema, "SCHEMA")
	}
	text = number.ReplaceAllString(text, "process PID")
	text = instant.ReplaceAllString(text, "INSTANT")
	text = size.ReplaceAllString(text, "${1}N$2")
	return away.ReplaceAllString(text, "(SPAN)")
}
