package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belay-run/belay/proptest"
)

// belayVerify runs the command and answers what it printed and its exit code.
func belayVerify(args ...string) (out, errs string, code int) {
	var o, e bytes.Buffer
	t := newTerminal(nil, nil, nil, func(string) string { return "" })
	t.in, t.out, t.err = strings.NewReader(""), &o, &e
	code = execute(context.Background(), append([]string{"verify"}, args...), t)
	return o.String(), e.String(), code
}

func TestVerifyProvesAFileAndRemovesIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "scratch")
	out, errs, code := belayVerify("--db", "sqlite:"+dir, "--json", "--checks", "1", "--only", "K9", "--only", "X9")
	if code != exitDone {
		t.Fatalf("exit %d: %s%s", code, errs, out)
	}
	var v proptest.Verification
	if err := json.Unmarshal([]byte(out), &v); err != nil || !v.Passed() || len(v.Suites) != 2 || len(v.Conformance.Findings) == 0 {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the scratch directory is still there: %v", err)
	}
}

func TestVerifyTouchesNothingThatIsThere(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "belay.db")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"sqlite:" + dir, "sqlite:" + file} {
		if _, errs, code := belayVerify("--db", place); code != exitUsage || !strings.Contains(errs, "not touched") {
			t.Errorf("%s: exit %d: %s", place, code, errs)
		}
	}
	if kept, err := os.ReadFile(file); err != nil || string(kept) != "precious" {
		t.Errorf("the file holds %q: %v", kept, err)
	}
	for _, args := range [][]string{{}, {"--db", "redis:x"}, {"--db", "memory:", "--checks", "0"}, {"--db", "sqlite:" + filepath.Join(dir, "a", "b")}} {
		if _, errs, code := belayVerify(args...); code != exitUsage {
			t.Errorf("%q: exit %d: %s", args, code, errs)
		}
	}
}
