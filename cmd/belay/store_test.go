package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

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

func TestWordsAreQuotedForTheShell(t *testing.T) {
	for word, want := range map[string]string{
		"plain-1.x": "plain-1.x", "a=JSON": "a=JSON", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$HOME": "'$HOME'",
	} {
		if got := quote(word); got != want {
			t.Errorf("%q is written %s, want %s", word, got, want)
		}
	}
}
