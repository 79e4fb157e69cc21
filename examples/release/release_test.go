// Package release holds a graph that checks this repository, and the test that runs it.
package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// outcome is what belay run --json prints.
type outcome struct {
	Status  string `json:"status"`
	Run     string `json:"run"`
	Hint    string `json:"hint"`
	Failure struct {
		Node    string `json:"node"`
		Attempt int    `json:"attempt"`
		Details struct {
			Stderr string `json:"stderr_tail"`
		} `json:"details"`
	} `json:"failure"`
	Output struct {
		Approved bool   `json:"approved"`
		Archive  string `json:"archive"`
		Licences string `json:"licences"`
		Notes    string `json:"notes"`
		Tests    string `json:"tests"`
	} `json:"output"`
}

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "belay")
	cmd := exec.Command("go", "build", "-o", binary, "./cmd/belay")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// check runs the release graph from the root of the repository.
func check(t *testing.T, binary, packages, out string, flags ...string) (outcome, int) {
	t.Helper()
	input, err := json.Marshal(map[string]any{"packages": []string{packages}, "out": out, "commits": 3})
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Concat([]string{"run", "examples/release/graph.yaml", "--json", "--input", string(input)}, flags)
	cmd := exec.Command(binary, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "BELAY_DB=", "XDG_DATA_HOME="+t.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var o outcome
	dec := json.NewDecoder(&stdout)
	if err := dec.Decode(&o); err != nil || dec.More() {
		t.Fatalf("it did not print one JSON object (%v)\n%s", err, stderr.String())
	}
	return o, cmd.ProcessState.ExitCode()
}

func TestReleaseCheck(t *testing.T) {
	binary := build(t)

	t.Run("approved", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "dist")
		o, code := check(t, binary, "./claim", out, "--answer", "approve=true")
		if code != 0 || o.Status != "done" || o.Run == "" || !o.Output.Approved {
			t.Fatalf("exit %d: %+v", code, o)
		}
		if info, err := os.Stat(o.Output.Archive); err != nil || info.Size() == 0 || filepath.Dir(o.Output.Archive) != out {
			t.Errorf("the archive %q: %v", o.Output.Archive, err)
		}
		if !strings.Contains(o.Output.Licences, "github.com/belay-run/belay (this) LICENSE") {
			t.Errorf("the licences do not list the module itself: %q", o.Output.Licences)
		}
		if n := strings.Count(o.Output.Notes, "\n"); n < 1 || n > 3 {
			t.Errorf("%d lines of notes, want 1 to 3: %q", n, o.Output.Notes)
		}
		if !strings.Contains(o.Output.Tests, "ok") {
			t.Errorf("the tests' output: %q", o.Output.Tests)
		}
	})

	t.Run("refused", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "dist")
		o, code := check(t, binary, "./checkpoint", out, "--answer", "approve=false")
		if code != 0 || o.Status != "done" || o.Output.Approved || o.Output.Archive != "" {
			t.Errorf("exit %d: %+v", code, o)
		}
		if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("something was written to %s: %v", out, err)
		}
	})

	t.Run("unanswered", func(t *testing.T) {
		o, code := check(t, binary, "./checkpoint", t.TempDir())
		if code != 3 || o.Status != "waiting" || !strings.Contains(o.Hint, "--answer approve=") {
			t.Errorf("exit %d: %+v", code, o)
		}
	})

	t.Run("a package that does not exist", func(t *testing.T) {
		o, code := check(t, binary, "./nowhere", t.TempDir(), "--answer", "approve=true")
		if code != 1 || o.Status != "failed" || o.Failure.Node == "" || o.Failure.Attempt < 1 {
			t.Errorf("exit %d: %+v", code, o)
		}
		if !strings.Contains(o.Failure.Details.Stderr, "nowhere") {
			t.Errorf("the cause is not named: %q", o.Failure.Details.Stderr)
		}
	})
}
