package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "belay")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaryOnce = sync.OnceValues(func() (string, error) {
		binary := filepath.Join(dir, "belay")
		out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("go build: %w\n%s", err, out)
		}
		return binary, err
	})
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// binaryOnce compiles the command, once for all tests.
var binaryOnce func() (binary string, err error)

func build(t *testing.T) string {
	t.Helper()
	binary, err := binaryOnce()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// command is a run of the binary whose data directory is the test's own.
func command(t *testing.T, binary, data string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "BELAY_DB=", "XDG_DATA_HOME="+data)
	return cmd
}

// start runs the binary and answers what it printed, and its exit code.
func start(t *testing.T, binary, data string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := command(t, binary, data, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestExitCodesOfTheBuiltBinary(t *testing.T) {
	binary, data := build(t), t.TempDir()
	for _, c := range []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"done", []string{"run", "testdata/graphs/greet.yaml", "--input", `{"name":"Ada"}`}, exitDone, []string{"done"}},
		{"failed", []string{"run", "testdata/graphs/fail.yaml"}, exitFailed, []string{"node break", "attempt 2", "exit code 7"}},
		{"usage", []string{"run"}, exitUsage, []string{"one graph document is needed"}},
		{"waiting", []string{"run", "testdata/graphs/ask.yaml"}, exitWaiting, []string{"belay runs resolve ", "choose=JSON", "belay run --resume "}},
		{"bad graph", []string{"graph", "check", "testdata/graphs/five.yaml"}, exitFailed, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, stderr, code := start(t, binary, data, c.args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d\n%s", code, c.code, stderr)
			}
			for _, s := range c.says {
				if !strings.Contains(stderr, s) {
					t.Errorf("it does not say %q:\n%s", s, stderr)
				}
			}
		})
	}
}

func TestAnInterruptedRunOnMemorySaysThatItIsLost(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("there is no interrupt to send to a single process")
		return
	}
	cmd := exec.Command(build(t), "run", "testdata/graphs/sleep.yaml", "--db", "memory:")
	said, code := interruptWhen(t, cmd, "sleeps until")
	if code != exitInfrastructure {
		t.Errorf("exit code %d, want %d", code, exitInfrastructure)
	}
	if !strings.Contains(said, "is lost") {
		t.Errorf("it does not say that the run is lost:\n%s", said)
	}
}

// interruptWhen starts a command, interrupts it once it has said something, and answers all that it said.
func interruptWhen(t *testing.T, cmd *exec.Cmd, says string) (said string, code int) {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	var text bytes.Buffer
	readUntil(t, stderr, &text, says)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if _, err := text.ReadFrom(stderr); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return text.String(), cmd.ProcessState.ExitCode()
}

// readUntil reads until something was said.
func readUntil(t *testing.T, from io.Reader, text *bytes.Buffer, says string) {
	t.Helper()
	buffer := make([]byte, 1024)
	for !strings.Contains(text.String(), says) {
		n, err := from.Read(buffer)
		text.Write(buffer[:n])
		if err != nil {
			t.Fatalf("it ended before it said %q: %v\n%s", says, err, text.String())
		}
	}
}

// A run on memory can be neither poisoned nor cancelled by another process, so their
// outcomes are looked at directly.
func TestOutcomesThatOtherProcessesCause(t *testing.T) {
	doc := &run.Document{ID: "r1", Status: run.Cancelled, Reason: "not needed any more"}
	poisoned := &run.Document{ID: "r1", Status: run.Running}
	for _, c := range []struct {
		run  *belay.Run
		code int
		says string
	}{
		{&belay.Run{Document: doc}, exitCancelled, "cancelled: not needed any more"},
		{
			&belay.Run{Document: poisoned, Poison: claim.Poison{At: time.Unix(0, 0).UTC(), Reason: claim.MaxAttemptsExceeded}},
			exitPoisoned, "poisoned since 1970-01-01T00:00:00Z: " + claim.MaxAttemptsExceeded,
		},
	} {
		var errs bytes.Buffer
		term := &terminal{in: strings.NewReader(""), out: &errs, err: &errs, getenv: os.Getenv, now: time.Now}
		d := driver{place: &location{terminal: term}, store: &store{}}
		if code := term.finish(d.outcome(t.Context(), c.run)); code != c.code {
			t.Errorf("exit code %d, want %d", code, c.code)
		}
		if !strings.Contains(errs.String(), c.says) {
			t.Errorf("it says %q, and not %q", errs.String(), c.says)
		}
	}
}
