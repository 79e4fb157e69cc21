//go:build unix

package rolling

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// impatient gives up soon.
var impatient = limits{ttl: ttl, poll: 200 * time.Millisecond, backoff: time.Second, abandons: 3}

// lonely is how many runs are left to a fleet that cannot run them.
const lonely = 24

// TestAFleetThatCannotRunAGraphPoisonsItsRuns after the bound, unharmed and not all at once. The command
// line says why, and frees them all when the right release is out.
func TestAFleetThatCannotRunAGraphPoisonsItsRuns(t *testing.T) {
	b := built(t)
	onEach(t, func(t *testing.T, d database) { newFleet(t, d, impatient).isLeftAlone(t, b) })
}

func (f *fleet) isLeftAlone(t *testing.T, b binaries) {
	f.store = f.open(t)
	f.startAll(t, b.before)
	older := f.orders.place(t, order{}, 1, "").Graph
	cannot := f.manifest(t, 1)

	// Orders of the next release's graph wait for a person, and when they are answered it is gone.
	f.replaceAll(t, b.next, pinned...)
	can := f.manifest(t, 1)
	var placing sync.WaitGroup
	for slot := range lonely {
		placing.Go(func() { f.orders.place(t, order{input: input{Hold: "approval"}}, slot, "") })
	}
	placing.Wait()
	eventually(t, "all orders to ask", func() bool { return len(f.list(t, run.Waiting)) == lonely })
	newer := f.orders.of(func(one *order) bool { return one.Hold != "" })[0].Graph
	f.replaceAll(t, b.before)
	eventually(t, "all orders to be answered", func() bool { return f.orders.approve(true) == 0 })

	f.scatter(t)
	for _, r := range f.list(t, run.Running) {
		if r.Poison.Reason != claim.MaxAbandonsExceeded || r.Abandons != f.limits.abandons || r.Attempts != 0 {
			t.Errorf("run %s: poison %v, %d abandons, %d attempts", r.Run, r.Poison, r.Abandons, r.Attempts)
		}
	}

	out, code := f.belay(t, b, "graph", "compat", "--nodes", cannot)
	if code != 1 || !strings.Contains(out, newer[:8]) || !strings.Contains(out, "notify") || !strings.Contains(out, "charge") {
		t.Errorf("graph compat with the release before exits %d:\n%s", code, out)
	}
	t.Logf("%s: graph compat with the release before:\n%s", f.name, out)
	if out, code := f.belay(t, b, "graph", "compat", "--nodes", can); code != 0 {
		t.Errorf("graph compat with the next release exits %d:\n%s", code, out)
	}
	f.replaceAll(t, b.next)
	out, code = f.belay(t, b, "runs", "retry", "--reason", claim.MaxAbandonsExceeded)
	if code != 0 || !strings.Contains(out, "freed 24 runs") {
		t.Errorf("runs retry exits %d:\n%s", code, out)
	}
	t.Logf("%s: runs retry: %s", f.name, strings.TrimSpace(out))
	eventually(t, "all runs to end", func() bool { return len(f.list(t, run.Running, run.Waiting)) == 0 })
	f.close(t)
	f.verify(t, older, newer)
}

// replaceAll ends all processes in order, and starts others in their places.
func (f *fleet) replaceAll(t *testing.T, binary string, extra ...string) {
	t.Helper()
	for _, p := range f.processes {
		p.terminate(t)
		p.start(t, binary, extra...)
	}
}

// scatter watches until all runs are poisoned, and measures by how much the rests of those that are
// handed back differ.
func (f *fleet) scatter(t *testing.T) {
	t.Helper()
	abandons := map[string]int{}
	var jitter []time.Duration // what is certain of it
	eventually(t, "all runs to be poisoned", func() bool {
		runs := f.list(t, run.Running)
		now := time.Now()
		poisoned := 0
		for _, r := range runs {
			if r.Abandons > abandons[r.Run] && !r.Wake.IsZero() {
				jitter = append(jitter, r.Wake.Sub(now)-f.limits.backoff)
			}
			abandons[r.Run] = r.Abandons
			if !r.Poison.At.IsZero() {
				poisoned++
			}
		}
		return poisoned == lonely
	})
	if len(jitter) == 0 {
		t.Fatal("nothing was handed back and seen")
	}
	slices.Sort(jitter)
	most, middle := jitter[len(jitter)-1], jitter[len(jitter)/2]
	t.Logf("%s: of %d rests of %v each, half were at least %v longer, and none more than %v", f.name, len(jitter), f.limits.backoff,
		middle.Round(time.Millisecond), most.Round(time.Millisecond))
	if most < f.limits.backoff/4 || most > f.limits.backoff/2 {
		t.Errorf("the longest rest was %v longer than the backoff of %v", most, f.limits.backoff)
	}
}

// manifest stores the manifest of a process, and answers the file's path.
func (f *fleet) manifest(t *testing.T, slot int) string {
	t.Helper()
	var raw json.RawMessage
	if err := f.processes[slot].call("GET", "/nodes", nil, &raw); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "manifest.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// belay runs the command line on the fleet's database.
func (f *fleet) belay(t *testing.T, b binaries, args ...string) (out string, code int) {
	t.Helper()
	raw, err := exec.Command(b.belay, append(args, "--db", f.dsn)...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return string(raw), exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return string(raw), 0
}
