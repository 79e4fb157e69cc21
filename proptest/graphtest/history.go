package graphtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

const (
	// runID is the run of a history.
	runID = "run"
	// historyTTL is the TTL of its claims.
	historyTTL = time.Minute
	// longest is how long one drain may take, by the host's clock: nodes are meant to be quick.
	longest = time.Minute
)

// plan is what is drawn for a history before it begins, so that nothing is drawn on another
// goroutine than the test's.
type plan struct {
	fates    map[string][]fate // by node, for its attempts in turn
	troubles map[int]trouble   // by commit, counted from 1
	// answers choose among what fits a question; lets says for each that it is left to its
	// deadline, if it has one.
	answers []int
	lets    []bool
}

// history is one run of the graph, from its start to its end.
type history struct {
	t        proptest.T
	graph    *graph.Compiled
	nodes    *node.Registry
	settings settings
	plan     plan
	clock    *lifecycle.VirtualClock
	store    backend.Store
	world    *world

	process *process
	engine  *lifecycle.Engine

	mu       sync.Mutex
	lines    []string
	attempts map[string]int // by node
	commits  int
	inside   sync.WaitGroup // nodes at work
	pausing  bool           // a reply was lost, and the commit has not been sent again
	reads    int
	unread   []string
	misfits  []string

	asked int
	last  *lifecycle.Run
	stuck string
}

func newHistory(t proptest.T, compiled *graph.Compiled, nodes *node.Registry, s settings, p plan) *history {
	t.Helper()
	h := &history{
		t: t, graph: compiled, settings: s, plan: p, world: newWorld(), attempts: map[string]int{},
		clock: lifecycle.NewVirtualClock(time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)),
	}
	h.store = memory.New(memory.Options{Now: h.clock.Now})
	h.nodes = h.wrapped(nodes)
	t.Cleanup(func() { _ = h.store.Close() })
	return h
}

func (h *history) say(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf("%3d. ", len(h.lines)+1)+fmt.Sprintf(format, args...))
}

func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.lines, "\n")
}

// fateOf is the fate of a node's next attempt. After those that were planned it runs.
func (h *history) fateOf(n *graph.CompiledNode) fate {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.attempts[n.ID]
	h.attempts[n.ID]++
	if planned := h.plan.fates[n.ID]; i < len(planned) {
		return planned[i]
	}
	return succeeds
}

// commit counts a commit and says what happens at it.
func (h *history) commit() (n int, what trouble) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commits++
	if h.commits > h.settings.commits {
		return h.commits, crashBefore
	}
	return h.commits, h.plan.troubles[h.commits]
}

func (h *history) made() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commits
}

// boot starts a process.
func (h *history) boot() {
	h.t.Helper()
	p := &process{Store: h.store, history: h}
	engine, err := lifecycle.New(lifecycle.Config{
		Backend: p, Nodes: h.nodes, Clock: patient{h.clock, h}, TTL: historyTTL, MaxAttempts: 50, Concurrency: 1,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		h.t.Fatalf("the engine: %v", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.process, h.engine = p, engine
}

func (h *history) client() *lifecycle.Engine {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.engine
}

// run takes the run from its start to its end, or says why it gets no further.
func (h *history) run() {
	h.t.Helper()
	ctx := context.Background()
	h.boot()
	ref, err := h.engine.Publish(ctx, h.graph.Document())
	if err != nil {
		h.t.Fatalf("the graph: %v", err)
	}
	if _, err := h.engine.Start(ctx, ref, h.settings.input, lifecycle.StartOptions{ID: runID}); err != nil {
		h.t.Fatalf("the run cannot be started: %v (say what it starts with: graphtest.Input)", err)
	}
	for idle := 0; h.stuck == ""; {
		before := h.made()
		h.drain(ctx)
		if h.made() > before {
			idle = 0
		}
		info, err := h.store.InspectRun(ctx, backend.System(), runID)
		if err != nil {
			h.t.Fatalf("reading the run: %v", err)
		}
		h.last = &lifecycle.Run{Document: info.Document, Wake: info.Wake, ClaimedAt: info.ClaimedAt, Poison: info.Poison}
		switch {
		case info.Document.Status.Terminal():
			h.say("the run is %s", info.Document.Status)
			return
		case h.made() > h.settings.commits:
			h.stuck = fmt.Sprintf("the run made %d commits and has not finished: nodes %v are to run next. Does a cycle of the graph end? Bound it with max_supersteps, or raise graphtest.MaxCommits",
				h.settings.commits, info.Document.Pending)
		case info.Poison.Reason != "":
			h.stuck = "the run is poisoned: " + info.Poison.Reason
		case h.process.isDead():
			h.say("another process goes on")
			h.clock.Advance(historyTTL + time.Second)
			h.boot()
		case !info.ClaimedAt.IsZero():
			h.clock.Advance(historyTTL + time.Second)
		case h.last.NeedsAnswer():
			h.answer(ctx, info)
		case info.Wake.After(h.clock.Now()):
			h.clock.AdvanceTo(info.Wake)
		case idle < 2:
			idle++
			continue
		default:
			h.stuck = fmt.Sprintf("the run is %s, due at %v, and nobody drives it", info.Document.Status, info.Wake)
		}
	}
}

// drain drives what is due.
func (h *history) drain(ctx context.Context) {
	h.t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := h.engine.Drain(ctx, lifecycle.DrainOptions{})
		done <- err
	}()
	limit := time.NewTimer(longest)
	defer limit.Stop()
	select {
	case err := <-done:
		if err != nil && !h.process.isDead() {
			h.t.Fatalf("the engine: %v\n%s", err, h)
		}
	case <-limit.C:
		h.t.Fatalf("a node has not returned in %v: nodes under test must be quick, and end with their context\n%s", longest, h)
	}
	// What was given up at its deadline moves the clock until it returns.
	returned := make(chan struct{})
	go func() { h.inside.Wait(); close(returned) }()
	select {
	case <-returned:
	case <-limit.C:
		h.t.Fatalf("a node has not returned in %v: nodes under test must be quick, and end with their context\n%s", longest, h)
	}
}

// patient is the engine's clock. The pause before a commit is sent again takes no time: nobody
// else would let it pass, and what it is for is long over.
type patient struct {
	*lifecycle.VirtualClock
	history *history
}

// AfterFunc calls f at its time, or at once.
func (c patient) AfterFunc(d time.Duration, f func()) func() bool {
	h := c.history
	h.mu.Lock()
	if h.pausing && d <= time.Second {
		d, h.pausing = 0, false
	}
	h.mu.Unlock()
	return c.VirtualClock.AfterFunc(d, f)
}

// answer answers one question, or lets it come to its deadline.
func (h *history) answer(ctx context.Context, info backend.Info) {
	h.t.Helper()
	q := info.Document.OpenInterrupts()[0]
	choice, let := 0, false
	if n := h.asked; n < len(h.plan.answers) {
		choice, let = h.plan.answers[n], h.plan.lets[n]
	}
	h.asked++
	if let && !q.Deadline.IsZero() {
		h.say("nobody answers question %s before its deadline", q.ID)
		h.clock.AdvanceTo(q.Deadline)
		return
	}
	var candidates []any
	if h.settings.answers != nil {
		candidates = []any{h.settings.answers(q)}
	} else {
		candidates = h.fitting(q)
	}
	for i := range candidates {
		a := candidates[(choice+i)%len(candidates)]
		_, err := h.engine.Resolve(ctx, runID, q.ID, a)
		if err == nil {
			h.say("question %s of node %s is answered: %v", q.ID, q.Node, shown(a))
			return
		}
		if !errors.Is(err, run.ErrInvalidAnswer) {
			h.stuck = fmt.Sprintf("question %s of node %s cannot be answered: %v", q.ID, q.Node, err)
			return
		}
	}
	h.stuck = fmt.Sprintf("no answer that was tried fits question %s of node %s, with the schema %s: say one with graphtest.Answers", q.ID, q.Node, q.Schema)
}

func shown(v any) string {
	raw, err := value.Of(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}

// fitting lists plain answers that fit a question's own schema.
func (h *history) fitting(q run.Interrupt) []any {
	candidates := []any{true, false, "yes", "", 1, 0, 1.5, []any{}, map[string]any{}, nil}
	if q.Default != nil {
		candidates = append(candidates, q.Default)
	}
	if q.Schema == nil {
		return candidates
	}
	schema, err := value.CompileSchema(q.Schema, h.graph.Document().Defs)
	if err != nil {
		return candidates
	}
	var fit []any
	for _, c := range append(candidates, choices(q.Schema)...) {
		if raw, err := value.Of(c); err == nil && schema.Validate(raw) == nil {
			fit = append(fit, c)
		}
	}
	return fit
}
