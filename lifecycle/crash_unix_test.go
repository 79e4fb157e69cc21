//go:build unix

package lifecycle_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// The environment of a process that serves a file, started by the crash test.
const (
	crashFile   = "BELAY_TEST_SERVE"
	crashLedger = "BELAY_TEST_LEDGER"
)

func init() {
	if path := os.Getenv(crashFile); path != "" {
		os.Exit(serveFile(path, os.Getenv(crashLedger)))
	}
}

const (
	crashTTL  = 600 * time.Millisecond
	crashRuns = 300
)

// mark is what every node of the crash test writes: that it was counted.
type mark struct {
	Marks []string `json:"marks"`
}

// crashTypes are the nodes of the crash test. Each records its effect, under its idempotency key,
// before it completes.
func crashTypes(effect func(call *node.Call)) []node.Type {
	marked := func(name string, f func(ctx context.Context, call *node.Call) error) node.Type {
		return node.Of(name, 1, func(ctx context.Context, _ none) (mark, error) {
			call, _ := node.FromContext(ctx)
			if err := f(ctx, call); err != nil {
				return mark{}, err
			}
			effect(call)
			return mark{Marks: []string{call.Node}}, nil
		})
	}
	return []node.Type{
		marked("work", func(ctx context.Context, _ *node.Call) error {
			select {
			case <-time.After(time.Duration(rand.IntN(60)) * time.Millisecond):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}),
		marked("flaky", func(_ context.Context, call *node.Call) error {
			if call.Attempt < 3 {
				return errors.New("not yet")
			}
			return nil
		}),
		marked("nap", func(_ context.Context, call *node.Call) error {
			if until := call.PlannedAt.Add(150 * time.Millisecond); call.Now().Before(until) {
				return node.Snooze(until)
			}
			return nil
		}),
		marked("ask", func(ctx context.Context, _ *node.Call) error {
			answer, ok, err := node.Answered[string](ctx, "")
			switch {
			case err != nil:
				return err
			case !ok:
				return node.Ask(node.Question{Prompt: "go on?"})
			case answer != "yes":
				return node.Permanent(fmt.Errorf("answered %q", answer))
			}
			return nil
		}),
	}
}

const marksField = `
fields: {marks: {schema: {type: array, items: {type: string}}, reducer: append}}
outputs: {marks: {from: marks}}
`

// crashGraphs are the mixed graphs, and the nodes that count in each.
var crashGraphs = []struct {
	text  string
	nodes []string
}{
	{`
id: chain
nodes: {a: {use: work}, b: {use: work}, c: {use: work}, d: {use: work}, e: {use: work}}
edges: {i: {from: $start, to: a}, ab: {from: a, to: b}, bc: {from: b, to: c}, cd: {from: c, to: d}, de: {from: d, to: e}}
` + marksField, []string{"a", "b", "c", "d", "e"}},
	{`
id: fanout
nodes: {a: {use: work}, b: {use: work}, c: {use: work}, d: {use: work}, join: {use: work}}
edges:
  i: {from: $start, to: a}
  ab: {from: a, to: b}
  ac: {from: a, to: c}
  ad: {from: a, to: d}
  j: {from: [b, c, d], to: join}
` + marksField, []string{"a", "b", "c", "d", "join"}},
	{`
id: retry
nodes: {a: {use: work}, f: {use: flaky, retry: {max_attempts: 5, backoff: {initial: 20ms}}}}
edges: {i: {from: $start, to: a}, af: {from: a, to: f}}
` + marksField, []string{"a", "f"}},
	{`
id: interrupt
nodes: {a: {use: work}, q: {use: ask}, w: {use: work}, z: {use: work}}
edges: {i: {from: $start, to: a}, aq: {from: a, to: q}, aw: {from: a, to: w}, j: {from: [q, w], to: z}}
` + marksField, []string{"a", "q", "w", "z"}},
	{`
id: sleep
nodes: {a: {use: work}, s: {use: nap}, z: {use: work}}
edges: {i: {from: $start, to: a}, as: {from: a, to: s}, sz: {from: s, to: z}}
` + marksField, []string{"a", "s", "z"}},
}

// crashEngine opens an engine on the file.
func crashEngine(path string, effect func(*node.Call)) (*sqlite.Store, *lifecycle.Engine, error) {
	store, err := sqlite.Open(context.Background(), path, sqlite.Options{SharedDirectory: true})
	if err != nil {
		return nil, nil, err
	}
	e, err := lifecycle.New(lifecycle.Config{
		Backend: store, Nodes: node.NewRegistry().Add(crashTypes(effect)...),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		TTL:    crashTTL, Concurrency: 8, PollInterval: 100 * time.Millisecond,
	})
	return store, e, err
}

// serveFile is a process that serves until it is killed, or told to stop.
func serveFile(path, ledger string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	file, err := os.OpenFile(ledger, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		var store *sqlite.Store
		var e *lifecycle.Engine
		store, e, err = crashEngine(path, func(call *node.Call) {
			// One write of one line: other processes append to the file, too.
			if _, err := fmt.Fprintf(file, "%s %s %s\n", call.Run, call.Node, call.IdempotencyKey); err != nil {
				panic(err)
			}
		})
		if err == nil {
			err = errors.Join(e.Run(ctx), store.Close())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// served is a process that serves the file.
type served struct {
	t    *testing.T
	env  []string
	cmd  *exec.Cmd
	errs bytes.Buffer
}

func (s *served) start() {
	s.t.Helper()
	s.cmd = exec.Command(os.Args[0])
	s.cmd.Env = append(os.Environ(), s.env...)
	s.cmd.Stderr = &s.errs
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *served) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Errorf("%v: %v\n%s", sig, err, s.errs.String())
	}
}

// Two processes serve one file. Every second one of them is killed, or frozen beyond its TTL. Every
// run ends right all the same: each node's result is counted once, no effect is lost, and the
// audit finds nothing.
func TestRunsSurviveProcessesThatAreKilledAndFrozen(t *testing.T) {
	dir := t.TempDir()
	path, ledger := filepath.Join(dir, "runs.db"), filepath.Join(dir, "ledger")
	store, e, err := crashEngine(path, func(*node.Call) {})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	want := map[string][]string{} // by run
	began := time.Now()
	for _, g := range crashGraphs {
		ref := publish(t, &e.Client, g.text)
		runs := make([]lifecycle.NewRun, crashRuns/len(crashGraphs))
		for i := range runs {
			runs[i].ID = fmt.Sprintf("%s-%d", ref.ID, i)
			runs[i].At = began.Add(time.Duration(i) * 80 * time.Millisecond) // so that it lasts, on any machine
			want[runs[i].ID] = g.nodes
		}
		started, err := e.StartMany(t.Context(), ref, runs)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range started {
			if s.Err != nil {
				t.Fatal(s.Err)
			}
		}
	}

	processes := [2]*served{}
	for i := range processes {
		processes[i] = &served{t: t, env: []string{crashFile + "=" + path, crashLedger + "=" + ledger}}
		processes[i].start()
	}
	ctx, stop := context.WithTimeout(t.Context(), 90*time.Second)
	defer stop()
	var disturbed sync.WaitGroup
	disturbances := 0
	disturbed.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
			p := processes[i%2]
			if i%4 < 2 {
				p.signal(syscall.SIGKILL)
				_ = p.cmd.Wait()
				p.start()
			} else {
				p.signal(syscall.SIGSTOP)
				time.Sleep(2 * crashTTL)
				p.signal(syscall.SIGCONT)
			}
			disturbances++
		}
	})
	recovered := answerAndRecover(t, ctx, e, len(want))
	stop()
	disturbed.Wait()
	for _, p := range processes {
		p.signal(syscall.SIGTERM)
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("a process ended with %v:\n%s", err, p.errs.String())
		}
	}
	t.Logf("%d disturbances, %d runs poisoned and recovered", disturbances, recovered)
	// A run is poisoned by as many launches in a row that came to nothing as MaxAttempts allows.
	if disturbances < 3 || recovered*5 > disturbances*8 {
		t.Errorf("%d disturbances, %d runs poisoned: want some of the former, and no more of the latter than they explain", disturbances, recovered)
	}

	for id, nodes := range want {
		r := inspect(t, &e.Client, id)
		var out mark
		if err := json.Unmarshal(r.Output, &out); r.Status != run.Done || err != nil {
			t.Errorf("run %s is %s (%+v)", id, r.Status, r.Failure)
			continue
		}
		slices.Sort(out.Marks)
		if !slices.Equal(out.Marks, nodes) {
			t.Errorf("run %s counted %v, want each of %v once", id, out.Marks, nodes)
		}
	}
	wantEffects(t, ledger, want)
	for finding, err := range store.Audit(t.Context(), backend.AuditPolicy{MaxAttempts: 5, MaxAbandons: 20}) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("the audit finds: %+v", finding)
	}
}

// answerAndRecover is what people do meanwhile: it answers questions and frees poisoned runs,
// until every run has ended or ctx has.
func answerAndRecover(t *testing.T, ctx context.Context, e *lifecycle.Engine, runs int) (recovered int) {
	t.Helper()
	for ctx.Err() == nil {
		page, err := e.List(ctx, backend.Query{Limit: backend.MaxLimit, Statuses: []run.Status{run.Running, run.Waiting}})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Runs) == 0 {
			return recovered
		}
		for _, s := range page.Runs {
			r, err := e.Inspect(ctx, s.Run)
			if err != nil {
				t.Fatal(err)
			}
			if !r.Poison.At.IsZero() {
				recovered++
				if _, err := e.RetryPoisoned(ctx, s.Run); err != nil {
					t.Error(err)
				}
			}
			for _, q := range r.OpenInterrupts() {
				if _, err := e.Resolve(ctx, s.Run, q.ID, "yes"); err != nil {
					t.Errorf("resolve %s of %s: %v", q.ID, s.Run, err)
				}
			}
		}
		time.Sleep(50 * time.Millisecond) // what other processes commit announces itself to nobody
	}
	t.Errorf("not all of %d runs have ended", runs)
	return recovered
}

// wantEffects fails the test when a node's effect is missing, or was made under two keys.
func wantEffects(t *testing.T, ledger string, want map[string][]string) {
	t.Helper()
	raw, err := os.ReadFile(ledger)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[[2]string]string{}
	lines := strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) != 3 {
			t.Fatalf("the ledger holds %q", line)
		}
		effect := [2]string{f[0], f[1]}
		if other, ok := keys[effect]; ok && other != f[2] {
			t.Errorf("node %s of run %s acted under the keys %s and %s", f[1], f[0], other, f[2])
		}
		keys[effect] = f[2]
	}
	effects := 0
	for id, nodes := range want {
		for _, n := range nodes {
			effects++
			if _, ok := keys[[2]string{id, n}]; !ok {
				t.Errorf("the effect of node %s of run %s is lost", n, id)
			}
		}
	}
	t.Logf("%d effects, %d of them repeated", effects, len(lines)-effects)
}
