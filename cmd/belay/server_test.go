package main

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/internal/pgtest"
)

// TestAddressesAreShownWithoutPasswords: what is shown can be read again, and hides every secret.
func TestAddressesAreShownWithoutPasswords(t *testing.T) {
	for dsn, want := range map[string]server{
		"postgres://u:secret@h:5433/d":                        {"postgres://u:secret@h:5433/d", "belay", false, "postgres://u:PASSWORD@h:5433/d"},
		"postgresql://h/d?belay_schema=my%20flows":            {"postgresql://h/d", "my flows", true, "postgresql://h/d?belay_schema=my+flows"},
		"postgres://u@h/d?password=secret&sslmode=disable":    {"postgres://u@h/d?password=secret&sslmode=disable", "belay", false, "postgres://u@h/d?password=PASSWORD&sslmode=disable"},
		"postgres://u:s%40cret@h/d?sslpassword=secret":        {"postgres://u:s%40cret@h/d?sslpassword=secret", "belay", false, "postgres://u:PASSWORD@h/d?sslpassword=PASSWORD"},
		"postgres:///d?host=%2Frun%2Fpg&pool_max_conns=3":     {"postgres:///d?host=%2Frun%2Fpg&pool_max_conns=3", "belay", false, "postgres:///d?host=%2Frun%2Fpg&pool_max_conns=3"},
		"postgres://u:secret@a:1,b:2/d?target_session_attrs=": {"postgres://u:secret@a:1,b:2/d?target_session_attrs=", "belay", false, "postgres://u:PASSWORD@a:1,b:2/d?target_session_attrs="},
	} {
		got, err := parseServer(dsn)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", dsn, got, err, want)
		}
		if again, err := parseServer(got.shown); err != nil || again.schema != got.schema || again.shown != got.shown {
			t.Errorf("%s is read as %+v, %v", got.shown, again, err)
		}
	}
}

// TestAnAddressThatCannotBeReadIsNotQuoted: a separator in a password puts it anywhere.
func TestAnAddressThatCannotBeReadIsNotQuoted(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:12/secret@h/d", "postgres://u:12?secret@h/d", "postgres://u:12?secret=a@h/d", "postgres://u:12#secret@h/d",
		"postgres://u:%secret@h/d", "postgres://u:secret @h/d", "postgres:secret", "postgres:/secret", "postgres://u@h/d?a=%secret",
		"postgres://u@h/d?;secret", "postgres://[secret/d",
	} {
		_, err := parseServer(dsn)
		switch {
		case exitCode(err) != exitUsage || err == nil:
			t.Errorf("%s: %v", dsn, err)
		case strings.Contains(err.Error()+hintOf(err)+shown(dsn), "secret"):
			t.Errorf("%s is quoted: %v, %s", dsn, err, shown(dsn))
		}
	}
}

// serverCommand is a run of the binary on a database.
func serverCommand(t *testing.T, on server, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, build(t), t.TempDir(), args...)
	cmd.Env = append(cmd.Env, "BELAY_DB="+on.db())
	return cmd
}

// serverStart runs it to its end.
func serverStart(t *testing.T, on server, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := serverCommand(t, on, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func migrated(t *testing.T) server {
	t.Helper()
	on := testServer(t)
	if _, errs, code := serverStart(t, on, "migrate"); code != exitDone {
		t.Fatalf("migrate: exit %d\n%s", code, errs)
	}
	return on
}

// TestAKilledRunGoesOnInAnotherProcessOnPostgres: what finished before the kill does not run again.
func TestAKilledRunGoesOnInAnotherProcessOnPostgres(t *testing.T) {
	on := migrated(t)
	file, hold, input := stepsInput(t)
	cmd := serverCommand(t, on, "run", "testdata/graphs/steps.yaml", "--id", "killed", "--input", input)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the node held begins", func() bool { return slices.Contains(executed(t, file), "held") })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := os.Remove(hold); err != nil { // what the killed process left behind ends, too
		t.Fatal(err)
	}
	if out, _, code := serverStart(t, on, "runs", "explain", "killed"); code != exitDone || !strings.Contains(out, "held by another process") {
		t.Errorf("explain: exit %d\n%s", code, out)
	}
	resumed := serverCommand(t, on, "run", "--resume", "killed")
	var said bytes.Buffer
	resumed.Stderr = &said
	if n := on.exec(t, "update runs set claimed_at = claimed_at - interval '61 seconds' where id = 'killed'"); n != 1 {
		t.Fatalf("%d claims are older now", n)
	}
	if err := resumed.Run(); err != nil {
		t.Fatalf("resuming: %v\n%s", err, said.String())
	}
	times := map[string]int{}
	for _, node := range executed(t, file) {
		times[node]++
	}
	for node, n := range map[string]int{"first": 1, "second": 1, "held": 2, "last": 1} {
		if times[node] != n {
			t.Errorf("node %s ran %d times, want %d", node, times[node], n)
		}
	}
	if out, _, code := serverStart(t, on, "fsck"); code != exitDone {
		t.Errorf("fsck: exit %d\n%s", code, out)
	}
}

// waitUntil waits for what another process does.
func waitUntil(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 30s", what)
		}
	}
}

// TestTheBuiltBinaryTellsWhatIsMissingOfADatabase: with the exit codes.
func TestTheBuiltBinaryTellsWhatIsMissingOfADatabase(t *testing.T) {
	on := testServer(t)
	elsewhere, err := url.Parse(on.dsn)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere.Path = "/belay_nowhere"
	nowhere := elsewhere.String()
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"not migrated", []string{"run", "testdata/graphs/greet.yaml", "--input", `{"name":"Ada"}`}, exitInfrastructure, "belay migrate"},
		{"printed", []string{"migrate", "--print"}, exitDone, "create table"},
		{"migrated", []string{"migrate"}, exitDone, "up to date"},
		{"done", []string{"run", "testdata/graphs/greet.yaml", "--input", `{"name":"Ada"}`}, exitDone, "done"},
		{"backup", []string{"backup", "x.db"}, exitUsage, "pg_dump -n " + on.schema},
		{"no database", []string{"runs", "list", "--db", nowhere}, exitInfrastructure, "create it"},
		{"no database to migrate", []string{"migrate", "--db", nowhere}, exitInfrastructure, "create it"},
		{"no database to verify", []string{"verify", "--db", nowhere}, exitInfrastructure, "create it"},
	} {
		out, errs, code := serverStart(t, on, c.args...)
		if code != c.code || !strings.Contains(out+errs, c.says) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s%s", c.name, code, c.code, c.says, out, errs)
		}
	}
}

// TestPendingSQLMigratesForSomebodyWhoMayNot: a role without rights to create is told what is missing,
// prints it, and runs once somebody else has executed that and granted what it says.
func TestPendingSQLMigratesForSomebodyWhoMayNot(t *testing.T) {
	on := testServerOn(t, pgtest.Superuser(t))
	ctx := context.Background()
	owner, err := pgx.Connect(ctx, on.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(ctx)
	exec := func(text string) {
		t.Helper()
		if _, err := owner.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	role := on.schema + "_role"
	exec("create role " + role + " login password 'hunter2'")
	defer func() { exec("drop owned by " + role + "; drop role " + role) }()
	weak := on
	config := owner.Config()
	if !strings.Contains(on.dsn, "user="+config.User) {
		t.Fatalf("the address of the tests' database names no user: %s", on.shown)
	}
	weak.dsn = strings.Replace(on.dsn, "user="+config.User, "user="+role+"&password=hunter2", 1)

	_, said, code := serverStart(t, weak, "migrate", "--db", weak.db())
	if code != exitInfrastructure || !strings.Contains(said, "permission denied") || !strings.Contains(said, "migrate --print") || strings.Contains(said, "hunter2") {
		t.Errorf("migrating without rights: exit %d\n%s", code, said)
	}
	script, said, code := serverStart(t, weak, "migrate", "--print")
	if code != exitDone {
		t.Fatalf("printing: exit %d\n%s", code, said)
	}
	exec(script)
	for line := range strings.Lines(script) {
		if grant, ok := strings.CutPrefix(line, "-- grant "); ok {
			exec("grant " + strings.ReplaceAll(strings.TrimSuffix(strings.TrimSpace(grant), ";"), "ROLE", role))
		}
	}
	if _, said, code := serverStart(t, weak, "run", "testdata/graphs/greet.yaml", "--input", `{"name":"Ada"}`); code != exitDone {
		t.Errorf("running: exit %d\n%s", code, said)
	}
	for _, who := range []server{weak, on} {
		if out, said, code := serverStart(t, who, "fsck"); code != exitDone {
			t.Errorf("fsck: exit %d\n%s%s", code, out, said)
		}
	}
}

// schemasLike counts the schemas whose names begin so.
func schemasLike(t *testing.T, on server) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), on.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), "select count(*) from pg_namespace where starts_with(nspname, $1)", on.schema).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestVerifyProvesADatabaseInASchemaOfItsOwn(t *testing.T) {
	on := testServer(t)
	out, errs, code := serverStart(t, on, "verify", "--db", on.db(), "--json", "--checks", "1", "--only", "K9", "--only", "X9")
	if code != exitDone || !strings.Contains(out, `"K9`) {
		t.Errorf("exit %d: %s%s", code, errs, out)
	}
	if n := schemasLike(t, on); n != 0 {
		t.Errorf("%d schemas are left", n)
	}
	if _, said, code := serverStart(t, on, "migrate"); code != exitDone {
		t.Fatalf("exit %d: %s", code, said)
	}
	if _, errs, code := serverStart(t, on, "verify", "--db", on.db()); code != exitUsage || !strings.Contains(errs, "not touched") {
		t.Errorf("a schema that is there: exit %d: %s", code, errs)
	}
	if n := schemasLike(t, on); n != 1 {
		t.Errorf("there are %d schemas, want the one that was there", n)
	}
}

func TestAnInterruptedVerifyLeavesNothingBehind(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("there is no interrupt to send to a single process")
		return
	}
	on := testServer(t)
	cmd := serverCommand(t, on, "verify", "--db", on.db())
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(60*time.Second, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	waitUntil(t, "it verifies", func() bool { return schemasLike(t, on) > 0 })
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInfrastructure || !strings.Contains(said.String(), "interrupted") {
		t.Errorf("exit %d\n%s", code, said.String())
	}
	if n := schemasLike(t, on); n != 0 {
		t.Errorf("%d schemas are left", n)
	}
}

// TestAWorkerServesADatabase: whoever started what is due.
func TestAWorkerServesADatabase(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("there is no SIGTERM to send to a single process")
		return
	}
	on := migrated(t)
	if _, said, code := serverStart(t, on, "run", "testdata/graphs/ask.yaml", "--id", "asked"); code != exitWaiting {
		t.Fatalf("exit %d\n%s", code, said)
	}
	worker := serverCommand(t, on, "worker")
	var log bytes.Buffer
	worker.Stderr = &log
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	if _, said, code := serverStart(t, on, "runs", "resolve", "asked", `choose="red"`); code != exitDone {
		t.Fatalf("exit %d\n%s", code, said)
	}
	waitUntil(t, "the worker finishes the run", func() bool {
		return on.exec(t, "select from runs where id = 'asked' and status = 'done'") == 1
	})
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := worker.Wait(); err != nil || strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("%v\n%s", err, log.String())
	}
}

// TestNoCommandPrintsAPassword: by whichever command, however it ends.
func TestNoCommandPrintsAPassword(t *testing.T) {
	dir, dsn := t.TempDir(), "postgres://u:hunter2@127.0.0.1:1/d?sslmode=disable&sslpassword=hunter2"
	for _, words := range []string{
		"run testdata/graphs/greet.yaml", "run --resume x", "runs list", "runs show x", "runs explain x", "runs events x", "runs resolve x a=1",
		"runs cancel x", "runs retry x", "runs retry --reason x", "prune --older-than 1d", "fsck", "worker", "verify", "backup " + filepath.Join(dir, "x"),
		"migrate", "migrate --print", "graph compat",
	} {
		for _, more := range []string{"", " --json"} {
			var out, errs bytes.Buffer
			term := &terminal{in: strings.NewReader(""), out: &out, err: &errs, getenv: func(string) string { return "" }, now: time.Now}
			code := execute(t.Context(), strings.Split(words+" --db "+dsn+more, " "), term)
			if said := out.String() + errs.String(); strings.Contains(said, "hunter2") || code == exitDone || said == "" {
				t.Errorf("belay %s%s: exit %d\n%s", words, more, code, said)
			}
		}
	}
}
