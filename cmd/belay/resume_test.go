package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
)

// stepsInput is the input of the graph steps: each node appends its name to file, and the node
// held goes on once hold is gone.
func stepsInput(t *testing.T) (file, hold, input string) {
	t.Helper()
	dir := t.TempDir()
	file, hold = filepath.Join(dir, "file"), filepath.Join(dir, "hold")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(map[string]string{"file": file, "hold": hold})
	if err != nil {
		t.Fatal(err)
	}
	return file, hold, string(raw)
}

// executed is the nodes that ran, in order.
func executed(t *testing.T, file string) []string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Fields(string(raw))
}

func TestAKilledRunGoesOnAfterItsLastCheckpoint(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("the graph needs a POSIX shell")
		return
	}
	binary, data := build(t), t.TempDir()
	file, hold, input := stepsInput(t)
	cmd := command(t, binary, data, "run", "testdata/graphs/steps.yaml", "--id", "killed", "--input", input)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); !slices.Contains(executed(t, file), "held"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			t.Fatal("the node held did not begin within 30s")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if err := os.Remove(hold); err != nil { // what the killed process left behind ends, too
		t.Fatal(err)
	}

	if out, _, code := start(t, binary, data, "runs", "explain", "killed"); code != exitDone || !strings.Contains(out, "which is gone") {
		t.Errorf("explain: exit %d\n%s", code, out)
	}
	// The claim of the killed process is a minute from expiring, and nobody takes it by himself.
	said, code := interruptWhen(t, command(t, binary, data, "run", "--resume", "killed"), "--steal\n")
	if code != exitInfrastructure || !strings.Contains(said, "which is gone; its claim expires at ") {
		t.Errorf("waiting: exit %d\n%s", code, said)
	}
	if got := executed(t, file); slices.Contains(got, "last") {
		t.Errorf("it went on under another's claim: %v", got)
	}

	if _, said, code := start(t, binary, data, "run", "--resume", "kil", "--steal"); code != exitDone || !strings.Contains(said, "taken over") {
		t.Errorf("resuming: exit %d\n%s", code, said)
	}
	times := map[string]int{}
	for _, node := range executed(t, file) {
		times[node]++
	}
	want := map[string]int{"first": 1, "second": 1, "held": 2, "last": 1}
	for node, n := range want {
		if times[node] != n {
			t.Errorf("node %s ran %d times, want %d", node, times[node], n)
		}
	}
	if out, _, code := start(t, binary, data, "fsck"); code != exitDone {
		t.Errorf("fsck: exit %d\n%s", code, out)
	}
}

func TestAnInterruptedRunIsKeptAndGoesOn(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("there is no interrupt to send to a single process")
		return
	}
	binary, data := build(t), t.TempDir()
	said, code := interruptWhen(t, command(t, binary, data, "run", "testdata/graphs/sleep.yaml", "--id", "nap"), "sleeps until")
	if code != exitInfrastructure || !strings.Contains(said, "go on with: belay run --resume nap\n") {
		t.Errorf("exit %d\n%s", code, said)
	}
	out, _, _ := start(t, binary, data, "runs", "list", "--json")
	if !strings.Contains(out, `"run":"nap"`) || !strings.Contains(out, `"state":"scheduled"`) {
		t.Errorf("it is not there any more:\n%s", out)
	}
}

func TestTheDefaultDatabaseIsClosedToOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("modes say nothing there")
		return
	}
	binary, data := build(t), t.TempDir()
	home := filepath.Join(data, "home")
	cmd := command(t, "sh", "", "-c", `umask 0 && exec "$@"`, "sh", binary, "run", "testdata/graphs/greet.yaml", "--input", `{"name":"Ada"}`)
	cmd.Env = append(cmd.Env, "HOME="+home)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := filepath.Join(home, ".local", "share", "belay")
	if runtime.GOOS == "darwin" {
		dir = filepath.Join(home, "Library", "Application Support", "belay")
	}
	for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, "belay.db"): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
}

func TestTheFlagComesBeforeTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{"HOME": dir}
	term := &terminal{getenv: func(name string) string { return env[name] }}
	place := &location{terminal: term}
	check := func(want string, own bool) {
		t.Helper()
		if got, gotOwn, err := place.dsn(); err != nil || got != want || gotOwn != own {
			t.Errorf("%s, %v, %v; want %s, %v", got, gotOwn, err, want, own)
		}
	}
	env["XDG_DATA_HOME"] = filepath.Join(dir, "data")
	check("sqlite:"+filepath.Join(dir, "data", "belay", "belay.db"), true)
	env["BELAY_DB"] = "sqlite:env.db"
	check("sqlite:env.db", false)
	place.flag = "sqlite:flag.db"
	check("sqlite:flag.db", false)
}

func TestWithoutAHomeAPlaceMustBeNamed(t *testing.T) {
	place := &location{terminal: &terminal{getenv: func(string) string { return "" }}}
	_, _, err := place.dsn()
	if exitCode(err) != exitUsage || err == nil {
		t.Errorf("exit code %d of %v", exitCode(err), err)
	}
}

func TestColourIsOnlyForTerminalsThatWantIt(t *testing.T) {
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct {
		name    string
		to      *os.File
		env     map[string]string
		colours bool
	}{
		{"a terminal", device, nil, true},
		{"NO_COLOR", device, map[string]string{"NO_COLOR": "1"}, false},
		{"a dumb terminal", device, map[string]string{"TERM": "dumb"}, false},
		{"a file", file, nil, false},
	} {
		term := newTerminal(nil, nil, c.to, func(name string) string { return c.env[name] })
		if got := term.paint(red, "x") != "x"; got != c.colours {
			t.Errorf("%s: colour %v, want %v", c.name, got, c.colours)
		}
	}
}

func TestBeginningsAreLookedUpWithoutAnIndexToo(t *testing.T) {
	s := &store{Store: memory.New(memory.Options{})}
	engine, err := newEngine(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := belay.ReadGraph("testdata/graphs/ask.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := engine.Publish(t.Context(), doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"ab", "abc", "b"} {
		if _, err := engine.Start(t.Context(), ref, nil, belay.StartOptions{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	for prefix, want := range map[string]string{"ab": "ab", "abc": "abc", "b": "b"} {
		if info, err := findRun(t.Context(), s, backend.System(), prefix); err != nil || info.Document.ID != want {
			t.Errorf("%s: %v, want %s", prefix, err, want)
		}
	}
	for _, prefix := range []string{"a", "c"} {
		_, err := findRun(t.Context(), s, backend.System(), prefix)
		if ambiguous := (*ambiguousError)(nil); exitCode(err) != exitUsage || errors.As(err, &ambiguous) != (prefix == "a") {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}

func TestWordsAreQuotedForTheShell(t *testing.T) {
	for word, want := range map[string]string{
		"plain-1.x": "plain-1.x", "a=JSON": "a=JSON", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$HOME": "'$HOME'",
	} {
		if got := quote(word); got != want {
			t.Errorf("%q is written %s, want %s", word, got, want)
		}
	}
}
