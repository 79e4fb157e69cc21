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
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

const (
	crashTTL      = 600 * time.Millisecond
	crashAttempts = 5 // the default
	crashAbandons = 2 // few, so that runs are handed back so often in a row
	// crashSpread is over how long runs become due, so that it lasts on any machine.
	crashSpread = 10 * time.Second
	// crashPatience is for how long a slow machine may need to end them all.
	crashPatience = 4 * time.Minute
)

// crashing is a backend under the crash test.
type crashing struct {
	kind      string // of crashStores
	where     string // what its processes open
	processes int
	runs      int
	history   func(t *testing.T) []change
	claims    func(t *testing.T) []claiming // nil: as the changes tell, since one writer follows the other
	events    func(t *testing.T) []checkpointEvent
}

// crashStore is what a process opens.
type crashStore interface {
	backend.Store
	backend.Auditor
	Close() error
}

// crashStores opens stores whose claim tokens begin with the name of their process.
var crashStores = map[string]func(ctx context.Context, where, process string) (crashStore, error){}

// The environment of a process of the crash test.
const (
	crashKind    = "BELAY_TEST_CRASH_KIND"
	crashWhere   = "BELAY_TEST_CRASH_WHERE"
	crashLedger  = "BELAY_TEST_CRASH_LEDGER"
	crashProcess = "BELAY_TEST_CRASH_PROCESS"
	crashLacks   = "BELAY_TEST_CRASH_LACKS"
)

func init() {
	if kind := os.Getenv(crashKind); kind != "" {
		os.Exit(crashServe(kind, os.Getenv(crashWhere), ledger(os.Getenv(crashLedger))))
	}
}

// crashServe is a process that serves until it is killed, or told to stop.
func crashServe(kind, where string, effects ledger) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println("it can be told to stop")
	store, err := crashStores[kind](ctx, where, os.Getenv(crashProcess))
	if err == nil {
		var e *lifecycle.Engine
		if e, err = crashEngine(noted{store, effects.ofClaims()}, effects, strings.Fields(os.Getenv(crashLacks))...); err == nil {
			err = e.Run(ctx)
		}
		err = errors.Join(err, store.Close())
	}
	if err == nil || errors.Is(err, context.Canceled) && ctx.Err() != nil { // it was stopped before it had begun
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// noted is a store that writes down how many runs each of its claims may take.
type noted struct {
	crashStore
	claims ledger
}

func (s noted) Features() backend.Features {
	features := s.crashStore.Features()
	features.ClaimDocuments = s
	return features
}

func (s noted) ClaimDueDocuments(ctx context.Context, p claim.Policy) (backend.ClaimedBatch, error) {
	b, err := s.crashStore.Features().ClaimDocuments.ClaimDueDocuments(ctx, p)
	if len(b.Leases)+len(b.Poisoned) > 0 {
		s.claims.write(fmt.Sprintf("%d %d", b.Now.UnixMicro(), p.Limit))
	}
	return b, err
}

func crashEngine(store backend.Store, effects ledger, lacks ...string) (*lifecycle.Engine, error) {
	return lifecycle.New(lifecycle.Config{
		Backend: store, Nodes: node.NewRegistry().Add(crashTypes(effects, lacks...)...),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 1})),
		TTL:    crashTTL, Concurrency: 20, PollInterval: 100 * time.Millisecond,
		MaxAbandons: crashAbandons, AbandonBackoff: 300 * time.Millisecond,
	})
}

// ledger is a file in which nodes record their effects, a line each: run, node, idempotency key.
type ledger string

// ofClaims is the ledger of claims beside the one of effects.
func (l ledger) ofClaims() ledger { return l + ".claims" }

// limits reads how many runs claims might take, by their instants.
func (l ledger) limits(t *testing.T) map[int64]int {
	t.Helper()
	lines, err := l.lines()
	if err != nil {
		t.Fatal(err)
	}
	limits := make(map[int64]int, len(lines))
	for _, line := range lines {
		var at int64
		var limit int
		if _, err := fmt.Sscan(line, &at, &limit); err != nil {
			t.Fatalf("the ledger of claims holds %q: %v", line, err)
		}
		limits[at] = limit
	}
	return limits
}

// write appends one line with one write: other processes append to the file, too.
func (l ledger) write(line string) {
	file, err := os.OpenFile(string(l), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(file, line)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		panic(err)
	}
}

func (l ledger) lines() ([]string, error) {
	raw, err := os.ReadFile(string(l))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n"), err
}

// killed is the node that stands in the ledger of a process that a node has killed.
const killed = "(killed)"

// mark is what every node of the crash test writes: that it was counted.
type mark struct {
	Marks []string `json:"marks"`
}

// crashTypes are the nodes of the crash test. Each records its effect, under its idempotency key,
// before it completes.
func crashTypes(effects ledger, lacks ...string) (types []node.Type) {
	marked := func(name string, f func(ctx context.Context, call *node.Call) error) {
		if slices.Contains(lacks, name) {
			return
		}
		types = append(types, node.Of(name, 1, func(ctx context.Context, _ none) (mark, error) {
			call, _ := node.FromContext(ctx)
			if err := f(ctx, call); err != nil {
				return mark{}, err
			}
			effects.write(fmt.Sprintf("%s %s %s", call.Run, call.Node, call.IdempotencyKey))
			return mark{Marks: []string{call.Node}}, nil
		}))
	}
	marked("work", func(ctx context.Context, _ *node.Call) error {
		select {
		case <-time.After(time.Duration(rand.IntN(60)) * time.Millisecond):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	marked("flaky", func(_ context.Context, call *node.Call) error {
		if call.Attempt < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	marked("nap", func(_ context.Context, call *node.Call) error {
		if until := call.PlannedAt.Add(150 * time.Millisecond); call.Now().Before(until) {
			return node.Snooze(until)
		}
		return nil
	})
	marked("rare", func(context.Context, *node.Call) error { return nil })
	// As often as a run is launched in a row, and then no more.
	marked("deadly", func(_ context.Context, call *node.Call) error {
		lines, err := effects.lines()
		if err != nil {
			return err
		}
		launches, line := 0, fmt.Sprintf("%s %s %s", call.Run, killed, call.IdempotencyKey)
		for _, other := range lines {
			if other == line {
				launches++
			}
		}
		if launches >= crashAttempts {
			return nil
		}
		effects.write(line)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	})
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
	})
	return types
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
id: deadly
nodes: {deadly: {use: deadly}, z: {use: work}}
edges: {i: {from: $start, to: deadly}, z: {from: deadly, to: z}}
` + marksField, []string{"deadly", "z"}},
	{`
id: rare
nodes: {r: {use: rare}, z: {use: work}}
edges: {i: {from: $start, to: r}, z: {from: r, to: z}}
` + marksField, []string{"r", "z"}},
	{`
id: sleep
nodes: {a: {use: work}, s: {use: nap}, z: {use: work}}
edges: {i: {from: $start, to: a}, as: {from: a, to: s}, sz: {from: s, to: z}}
` + marksField, []string{"a", "s", "z"}},
}

// served is a place in the fleet: a process, and when that has died the next one.
type served struct {
	t    *testing.T
	name string
	env  []string
	errs bytes.Buffer
	gone chan struct{} // the last one ended as it was told to

	mu         sync.Mutex
	cmd        *exec.Cmd
	generation int
	stopping   bool
	listening  chan struct{}        // the process can be told to stop, or is gone
	died       map[string]time.Time // by name of the process
	frozen     [][2]time.Time
}

// start starts the next process of this place. The caller holds the lock.
func (s *served) start() {
	s.generation++
	name := fmt.Sprintf("%s.%d", s.name, s.generation)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), s.env...), crashProcess+"="+name)
	cmd.Stderr = &s.errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Error(err)
		close(s.gone)
		return
	}
	listening := make(chan struct{})
	s.cmd, s.listening = cmd, listening
	go func() {
		_, _ = out.Read(make([]byte, 1)) // an end says as much
		close(listening)
		err := cmd.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.died[name] = time.Now()
		var exit *exec.ExitError
		wasKilled := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
		switch {
		case s.stopping:
			if err != nil && !wasKilled {
				s.t.Errorf("process %s ended with %v:\n%s", name, err, s.errs.String())
			}
			close(s.gone)
		case wasKilled:
			s.start()
		default:
			s.t.Errorf("process %s ended by itself with %v:\n%s", name, err, s.errs.String())
			s.start()
		}
	}()
}

func (s *served) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.cmd.Process.Signal(sig) // it may have died just now
}

// freeze freezes the process beyond its TTL.
func (s *served) freeze(ctx context.Context) {
	began := time.Now()
	s.signal(syscall.SIGSTOP)
	select {
	case <-time.After(crashTTL * 3 / 2):
	case <-ctx.Done():
	}
	s.signal(syscall.SIGCONT)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = append(s.frozen, [2]time.Time{began, time.Now()})
}

// crash is the crash test: some processes serve one store; every second one of them is killed, or frozen
// beyond its TTL, and one node kills its process as often as it may before its run is poisoned. One node is
// known to one process only, and so its runs are handed back until they are poisoned, or it has them. Every run
// ends right all the same: each node's result is counted once, no effect is lost, the audit finds nothing,
// and the store's own history keeps the invariants of the contract.
func crash(t *testing.T, c crashing) {
	t.Helper()
	effects := ledger(filepath.Join(t.TempDir(), "ledger"))
	store, err := crashStores[c.kind](t.Context(), c.where, "people")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	e, err := crashEngine(store, effects)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	want := crashStart(t, e, c.runs, began)

	places := make([]*served, c.processes)
	for i := range places {
		places[i] = &served{
			t: t, name: fmt.Sprintf("p%d", i), gone: make(chan struct{}), died: map[string]time.Time{},
			env: []string{crashKind + "=" + c.kind, crashWhere + "=" + c.where, crashLedger + "=" + string(effects)},
		}
		switch i { // what a process lacks it hands back
		case 0:
		case c.processes - 1:
			places[i].env = append(places[i].env, crashLacks+"=nap rare")
		default:
			places[i].env = append(places[i].env, crashLacks+"=rare")
		}
		places[i].mu.Lock()
		places[i].start()
		places[i].mu.Unlock()
	}
	ctx, stop := context.WithTimeout(t.Context(), crashPatience)
	defer stop()
	var disturbing sync.WaitGroup
	disturbances := 0
	disturbing.Go(func() { // freezing is for shorter than the pause, so that not all are frozen at once
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
			place := places[i%len(places)]
			if (i/len(places)+i)%2 == 0 {
				place.signal(syscall.SIGKILL)
			} else {
				disturbing.Go(func() { place.freeze(ctx) })
			}
			disturbances++
		}
	})
	recovered := answerAndRecover(t, ctx, store, e)
	took := time.Since(began)
	stop()
	disturbing.Wait()
	for _, p := range places {
		p.mu.Lock()
		p.stopping = true
		listening := p.listening
		p.mu.Unlock()
		p.signal(syscall.SIGCONT)
		<-listening
		p.signal(syscall.SIGTERM)
		<-p.gone
	}
	if disturbances < 5 || recovered < 1 {
		t.Errorf("%d disturbances, %d runs recovered: want some of both", disturbances, recovered)
	}

	for id, w := range want {
		d, err := store.FetchRun(t.Context(), backend.Of(w.owner), id)
		if err != nil {
			t.Fatal(err)
		}
		var out mark
		if err := json.Unmarshal(d.Output, &out); d.Status != run.Done || err != nil {
			t.Errorf("run %s is %s (%+v)", id, d.Status, d.Failure)
			continue
		}
		slices.Sort(out.Marks)
		if !slices.Equal(out.Marks, w.nodes) {
			t.Errorf("run %s counted %v, want each of %v once", id, out.Marks, w.nodes)
		}
	}
	made, repeated := wantEffects(t, effects, want)
	for finding, err := range store.Audit(t.Context(), backend.AuditPolicy{MaxAttempts: crashAttempts, MaxAbandons: crashAbandons}) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("the audit finds: %+v", finding)
	}
	changes := c.history(t)
	h := newHistory(t.Errorf, changes, want)
	h.judge()
	if claims := c.claims; claims != nil {
		h.wantFullBatches(claims(t), effects.ofClaims().limits(t))
	} else {
		h.wantFullBatches(claimsInTurn(changes), effects.ofClaims().limits(t))
	}
	h.wantEvents(c.events(t))
	h.wantPoisonsExplained(places, recovered)
	if h.both < 1 || h.foreign() < 1 {
		t.Errorf("%s: want claims of both classes, and poisons of both kinds", h.summary())
	}
	t.Logf("%d runs in %.1fs, %d disturbances, %d runs poisoned and recovered; %d effects, %d of them repeated; %s",
		len(want), took.Seconds(), disturbances, recovered, made, repeated, h.summary())
}

// wanted is how a run is to end.
type wanted struct {
	owner backend.Owner
	nodes []string
}

// rareRuns is how many runs of each owner need the node that one process has.
const rareRuns = 20

// crashStart starts the runs, for two owners, and those whose node kills or is rare.
func crashStart(t *testing.T, e *lifecycle.Engine, runs int, began time.Time) map[string]wanted {
	t.Helper()
	want := map[string]wanted{}
	for _, owner := range []backend.Owner{backend.Tenantless(), backend.Tenant("acme")} {
		client := crashClient(e, owner)
		for _, g := range crashGraphs {
			ref := publish(t, client, g.text)
			n := runs / (len(crashGraphs) - 2) / 2
			switch g.nodes[0] {
			case "deadly":
				n = 1
			case "r":
				n = rareRuns
			}
			starts := make([]lifecycle.NewRun, n)
			for i := range starts {
				starts[i].ID = fmt.Sprintf("%s-%s-%d", ref.ID, owner, i)
				starts[i].At = began.Add(time.Duration(i) * crashSpread / time.Duration(max(n, 2*rareRuns)))
				want[starts[i].ID] = wanted{owner, g.nodes}
			}
			started, err := client.StartMany(t.Context(), ref, starts)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range started {
				if s.Err != nil {
					t.Fatal(s.Err)
				}
			}
		}
	}
	return want
}

func crashClient(e *lifecycle.Engine, owner backend.Owner) *lifecycle.Client {
	if tenant, ok := owner.Tenant(); ok {
		return e.For(tenant)
	}
	return &e.Client
}

// answerAndRecover is what people do meanwhile: it answers questions and frees poisoned runs,
// until every run has ended or ctx has.
func answerAndRecover(t *testing.T, ctx context.Context, store backend.Store, e *lifecycle.Engine) (recovered int) {
	t.Helper()
	for ctx.Err() == nil {
		left := 0
		q := backend.Query{Limit: backend.MaxLimit, Statuses: []run.Status{run.Running, run.Waiting}}
		for more := true; more; {
			page, err := store.ListRuns(ctx, backend.System(), q)
			if err != nil {
				t.Fatal(err)
			}
			left += len(page.Runs)
			for _, s := range page.Runs {
				client := crashClient(e, s.Owner)
				if !s.Poison.At.IsZero() || s.Status == run.Waiting {
					wantUnseen(t, ctx, e, s)
				}
				if !s.Poison.At.IsZero() {
					recovered++
					if _, err := client.RetryPoisoned(ctx, s.Run); err != nil {
						t.Error(err)
					}
				}
				if s.Status == run.Waiting {
					answer(t, ctx, client, s.Run)
				}
			}
			q.Before, more = page.Next, page.HasMore
		}
		if left == 0 {
			return recovered
		}
		time.Sleep(100 * time.Millisecond) // what other processes commit announces itself to nobody
	}
	t.Error("not all runs have ended")
	return recovered
}

// wantUnseen is C10 for those who act from outside: the run does not exist for the other owner.
func wantUnseen(t *testing.T, ctx context.Context, e *lifecycle.Engine, s backend.Summary) {
	t.Helper()
	other := e.For("acme")
	if s.Owner != backend.Tenantless() {
		other = &e.Client
	}
	_, fetch := other.Fetch(ctx, s.Run)
	_, retry := other.RetryPoisoned(ctx, s.Run)
	_, cancel := other.Cancel(ctx, s.Run, "it is not theirs")
	for _, err := range []error{fetch, retry, cancel} {
		if !errors.Is(err, backend.ErrNotFound) && ctx.Err() == nil {
			t.Errorf("C10: the other owner reaches run %s: %v", s.Run, err)
		}
	}
}

func answer(t *testing.T, ctx context.Context, client *lifecycle.Client, id string) {
	t.Helper()
	d, err := client.Fetch(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range (&lifecycle.Run{Document: d}).OpenInterrupts() {
		if _, err := client.Resolve(ctx, id, q.ID, "yes"); err != nil {
			t.Errorf("resolve %s of %s: %v", q.ID, id, err)
		}
	}
}

// wantEffects fails the test when a node's effect is missing, or was made under two keys.
func wantEffects(t *testing.T, effects ledger, want map[string]wanted) (made, repeated int) {
	t.Helper()
	lines, err := effects.lines()
	if err != nil {
		t.Fatal(err)
	}
	keys := map[[2]string]string{}
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) != 3 {
			t.Fatalf("the ledger holds %q", line)
		}
		if f[1] == killed {
			continue
		}
		effect := [2]string{f[0], f[1]}
		if other, ok := keys[effect]; ok && other != f[2] {
			t.Errorf("node %s of run %s acted under the keys %s and %s", f[1], f[0], other, f[2])
		} else if ok {
			repeated++
		}
		keys[effect] = f[2]
	}
	for id, w := range want {
		for _, n := range w.nodes {
			made++
			if _, ok := keys[[2]string{id, n}]; !ok {
				t.Errorf("the effect of node %s of run %s is lost", n, id)
			}
		}
	}
	return made, repeated
}
