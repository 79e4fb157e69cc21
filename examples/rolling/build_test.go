//go:build unix

package rolling

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const (
	root = "../.."
	// before is the commit that the release before is built from. It is on a line of its own: what had
	// format 1 and schema 1, with the service as it was then.
	before = "44e4840c47f9f9caa66f399b4255ffbc29a9e218"
)

// releases are the binaries of both releases.
type releases struct{ before, next string }

// buildReleases builds both. Without the history it fails.
func buildReleases(t *testing.T) releases {
	t.Helper()
	dir := t.TempDir()
	r := releases{before: filepath.Join(dir, "before"), next: filepath.Join(dir, "next")}
	command(t, root, "go", "build", "-o", r.next, "./examples/rolling/service")
	if out, err := exec.Command("git", "-C", root, "cat-file", "-e", before+"^{commit}").CombinedOutput(); err != nil {
		t.Fatalf("the release before is built from commit %s, which is not in the history here: %v\n%s"+
			"Test in a clone of the repository with all of its history; git fetch --unshallow completes one.", before, err, out)
	}
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o700); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(dir, "before.tar")
	command(t, root, "git", "archive", "--format=tar", "--output="+archive, before)
	command(t, tree, "tar", "-xf", archive)
	command(t, tree, "go", "build", "-o", r.before, "./examples/rolling/service")
	return r
}

// command runs a program in a folder, and answers what it prints.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, stderr.Bytes())
	}
	return string(out)
}
