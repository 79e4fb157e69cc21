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

// inMemory is a store that holds runs with these ids.
