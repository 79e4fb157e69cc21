//go:build unix

package release

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tools is a folder of programs that stand before go and git in PATH: each notes how it was
// called, and git log holds on for as long as the file hold is there.
func tools(t *testing.T) (path, calls, hold string) {
	t.Helper()
	dir := t.TempDir()
	calls, hold = filepath.Join(dir, "calls"), filepath.Join(dir, "hold")
	for _, name := range []string{"go", "git"} {
		real, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		script := fmt.Sprintf("#!/bin/sh\necho %s \"$1\" >>'%s'\n[ \"$1\" != log ] || while [ -e '%s' ]; do sleep 0.02; done\nexec '%s' \"$@\"\n", name, calls, hold, real)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir + string(os.PathListSeparator) + os.Getenv("PATH"), calls, hold
}

// said waits until a process has said something.
func said(t *testing.T, out io.Reader, what string) {
	t.Helper()
	lines := bufio.NewScanner(out)
	var all strings.Builder
	for lines.Scan() {
		all.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), what) {
			return
		}
	}
	t.Fatalf("it did not say %q:\n%s", what, all.String())
}

// TestAKilledReleaseGoesOn: killed in the middle, and started again, it goes on after its last
// checkpoint, and what was checked is not checked again.
func TestAKilledReleaseGoesOn(t *testing.T) {
	binary := build(t)
	path, calls, hold := tools(t)
	data, out := t.TempDir(), filepath.Join(t.TempDir(), "dist")
	input, err := json.Marshal(map[string]any{"packages": []string{"./checkpoint"}, "out": out, "commits": 3})
	if err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "BELAY_DB=", "XDG_DATA_HOME="+data, "PATH="+path)
		return cmd
	}
	first := command("run", "examples/release/graph.yaml", "--id", "release-1", "--input", string(input))
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !strings.Contains(read(t, calls), "git log"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = first.Process.Kill()
			t.Fatalf("the notes were not begun within a minute: %q", read(t, calls))
		}
	}
	if err := first.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	if err := os.Remove(hold); err != nil { // what the killed process left behind ends, too
		t.Fatal(err)
	}

	waiting := command("run", "--resume", "release-1", "--answer", "approve=true")
	stderr, err := waiting.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	said(t, stderr, "its claim expires at ")
	if err := waiting.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, stderr)
	_ = waiting.Wait()

	stolen := command("run", "--resume", "release-1", "--steal", "--answer", "approve=true", "--json")
	stdout, err := stolen.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stdout)
	}
	var o outcome
	if err := json.Unmarshal(stdout, &o); err != nil || o.Status != "done" || !o.Output.Approved {
		t.Fatalf("%v\n%s", err, stdout)
	}
	if info, err := os.Stat(o.Output.Archive); err != nil || info.Size() == 0 || filepath.Dir(o.Output.Archive) != out {
		t.Errorf("the archive %q: %v", o.Output.Archive, err)
	}
	times := map[string]int{}
	for _, call := range strings.Split(read(t, calls), "\n") {
		times[call]++
	}
	for call, n := range map[string]int{"go vet": 1, "go test": 1, "go list": 1, "git log": 2, "git archive": 1} {
		if times[call] != n {
			t.Errorf("%s was called %d times, want %d", call, times[call], n)
		}
	}
	if out, err := command("fsck").CombinedOutput(); err != nil {
		t.Errorf("fsck: %v\n%s", err, out)
	}
}

// read is what a file holds, nothing before there is one.
func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(raw)
}
