//go:build unix

package sqlite_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belay-run/belay/run"
)

// points are the named places at which a process ends itself, and how often it passes each
// before it does.
var points = map[string][]int{
	"begin.before": {3, 40, 90}, "begin.after": {5, 50, 91}, "commit.before": {2, 7, 30, 60, 95}, "commit.after": {2, 9, 31, 61, 96},
	"insert.row": {1, 5, 9}, "insert.events": {1, 4, 10},
	"commit.row": {1, 3, 6, 11}, "commit.document": {1, 4, 7, 12}, "commit.events": {1, 2, 5, 8, 13},
	"claim.selected": {1, 3, 6}, "claim.row": {1, 2, 5, 9}, "release.before": {1, 2, 3},
	"abandon.before": {1, 2, 4}, "abandon.after": {1, 2, 4},
	"mutate.decided": {1, 2, 4}, "mutate.row": {1, 2, 4}, "mutate.events": {1, 2, 4},
	"prune.row": {1, 2, 3, 4, 8},
}

// killsVariable multiplies the kills of TestKill.
const killsVariable = "BELAY_SQLITE_KILLS"

// delays is how many kills come after a delay instead of at a point.
const delays = 140

// killsPerFile is how many kills happen to one file before a fresh one is taken.
const killsPerFile = 10

// TestKill: a process that drives runs is killed, after stepped delays and at every named
// point of a commit, a claim, an abandon, a mutation and a prune. Each time the file is sound,
// has everything that was answered, and its runs are finished by another process.
func TestKill(t *testing.T) {
	t.Parallel()
	binary := buildChild(t)
	times := 1
	if n, err := strconv.Atoi(os.Getenv(killsVariable)); err == nil {
		times = n
	}
	type kill struct {
		point string
		after time.Duration
	}
	var kills []kill
	for range times {
		for name, nths := range points {
			for _, nth := range nths {
				kills = append(kills, kill{point: fmt.Sprintf("%s:%d", name, nth)})
			}
		}
		for n := range delays {
			kills = append(kills, kill{after: time.Duration(n) * 700 * time.Microsecond})
		}
	}
	if len(kills) < 200 {
		t.Errorf("only %d kills", len(kills))
	}
	next := make(chan kill)
	go func() {
		defer close(next)
		for _, k := range kills {
			next <- k
		}
	}()
	inParallel(2, func(int) {
		var c *crashed
		for k := range next {
			if c == nil || c.kills == killsPerFile {
				c = newCrashed(t, binary)
			}
			c.kill(t, k.point, k.after)
		}
	})
}

func inParallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// buildChild builds this test binary anew, with the points in it.
func buildChild(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "child.test")
	build(t, "test", "-c", "-tags", "belay_killpoints", "-o", binary, ".")
	return binary
}

func build(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestReleaseHasNoPoints: a program built as users build it has nothing of them.
func TestReleaseHasNoPoints(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, tags := range map[string]string{"release": "", "points": "belay_killpoints"} {
		binary := filepath.Join(dir, name)
		build(t, "build", "-tags", tags, "-o", binary, "./testdata/release")
		raw, err := os.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		if has := bytes.Contains(raw, []byte("BELAY_SQLITE_KILLPOINT")); has != (name == "points") {
			t.Errorf("the binary with tags %q has the points: %v", tags, has)
		}
	}
}

// crashed is one file and what was promised about it by the processes that were killed.
type crashed struct {
	binary, path string
	kills        int
	promised     map[string]promised
	mayBeGone    map[string]bool
}

type promised struct {
	seq    int64
	status run.Status
}

func newCrashed(t *testing.T, binary string) *crashed {
	t.Helper()
	dir, err := os.MkdirTemp("", "belay")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &crashed{binary: binary, path: filepath.Join(dir, "belay.db"), promised: make(map[string]promised), mayBeGone: make(map[string]bool)}
}

// kill lets a process run until it is killed, and looks at what it left.
func (c *crashed) kill(t *testing.T, point string, after time.Duration) {
	c.kills++
	name := fmt.Sprintf("kill %d of %s (point %q, after %v)", c.kills, c.path, point, after)
	cmd := exec.Command(c.binary)
	cmd.Env = append(os.Environ(), childRole+"=crash", childFile+"="+c.path,
		fmt.Sprintf("%s=%d", childOffset, time.Duration(2*c.kills)*time.Hour), "BELAY_SQLITE_KILLPOINT="+point)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	c.listen(bufio.NewReader(out), func() {
		if point == "" {
			time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		}
	})
	err = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("%s: it was not killed: %v\n%s", name, err, stderr.String())
		return
	}
	c.look(t, name)
}

// listen keeps the promises, until the process is gone. The last line may be cut off: then
// it was not made.
func (c *crashed) listen(out *bufio.Reader, ready func()) {
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			return
		}
		f := strings.Fields(line)
		switch f[0] {
		case "ready":
			ready()
		case "mayprune":
			c.mayBeGone[f[1]] = true
		case "commit":
			seq, _ := strconv.ParseInt(f[2], 10, 64)
			if seq > c.promised[f[1]].seq {
				c.promised[f[1]] = promised{seq, run.Status(f[3])}
			}
		}
	}
}

// look lets a fresh process audit the file, hold it to the promises, and finish its runs.
func (c *crashed) look(t *testing.T, name string) {
	var promises strings.Builder
	for id, p := range c.promised {
		fmt.Fprintf(&promises, "%s %d %s %v\n", id, p.seq, p.status, c.mayBeGone[id])
	}
	cmd := exec.Command(c.binary)
	cmd.Env = append(os.Environ(), childRole+"=look", childFile+"="+c.path,
		fmt.Sprintf("%s=%d", childOffset, time.Duration(2*c.kills+1)*time.Hour))
	cmd.Stdin = strings.NewReader(promises.String())
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s: %v\n%s", name, err, out)
	}
}
