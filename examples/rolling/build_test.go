//go:build unix

package rolling

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

const (
	root = "../.."
	// before is the commit that the release before is built from. It is on a line of its own: what had
	// format 1 and schema 1, with the service as it was then.
	before = "44e4840c47f9f9caa66f399b4255ffbc29a9e218"
)

// folder is where binaries are built. It is gone with the tests.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "rolling"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// binaries are those of both releases, and the command line of the next one.
type binaries struct{ before, next, belay string }

// built builds them, once.
func built(t *testing.T) binaries {
	t.Helper()
	b, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// errNoHistory: the repository here is not whole.
var errNoHistory = errors.New("the release before is built from commit " + before + ", which is not in the history here: " +
	"test in a clone of the repository with all of its history (git fetch --unshallow completes one)")

var build = sync.OnceValues(func() (binaries, error) {
	b := binaries{before: filepath.Join(folder, "before"), next: filepath.Join(folder, "next"), belay: filepath.Join(folder, "belay")}
	tree, archive := filepath.Join(folder, "tree"), filepath.Join(folder, "before.tar")
	if err := os.Mkdir(tree, 0o700); err != nil {
		return b, err
	}
	if _, err := command(root, "git", "cat-file", "-e", before+"^{commit}"); err != nil {
		return b, fmt.Errorf("%w: %w", errNoHistory, err)
	}
	for _, step := range []struct {
		dir     string
		command []string
	}{
		{root, []string{"git", "archive", "--format=tar", "--output=" + archive, before}},
		{tree, []string{"tar", "-xf", archive}},
		{tree, []string{"go", "build", "-o", b.before, "./examples/rolling/service"}},
		{root, []string{"go", "build", "-o", b.next, "./examples/rolling/service"}},
		{root, []string{"go", "build", "-o", b.belay, "./cmd/belay"}},
	} {
		if _, err := command(step.dir, step.command...); err != nil {
			return b, err
		}
	}
	return b, nil
})

// command runs a program in a folder, and answers what it prints.
func command(dir string, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%v: %w\n%s", args, err, stderr.Bytes())
	}
	return string(out), err
}
