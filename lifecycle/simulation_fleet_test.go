package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

const (
	simTTL   = 12 * time.Second
	simHosts = 3
	simRuns  = 6
	// simHolds is how many runs a host may hold, and simBudget how many commits one claim may make.
	simHolds  = 3
	simBudget = 2
	// simStopping is how long a shutdown may take: its timeout, twice a node's grace, and a slow store.
	simStopping = 10*time.Second + 2*5*time.Second + 3*simTTL
	// simTrouble is how long things go wrong, and simPatience how long it may take after that
	// until every run has ended.
	simTrouble  = 90 * time.Second
	simPatience = time.Hour
)

// fleet is what is simulated: engines on one store, and who starts runs and answers them.
type fleet struct {
	*simulation
	store     *memory.Store
	announced <-chan struct{}
	fault     string // planted
	trouble   bool   // things may go wrong

	people *Engine // starts and answers, and never runs
	hostOf *host   // of people
	ids    int

	refs    [2]graph.Ref // the two versions of the graph
	runs    map[string]*simRun
	broken  []string
	working map[string][]*working // by task
}

// simRun is what is known of a run from what the store acknowledged.
type simRun struct {
	seq       int64
	token     claim.Token
	holder    *host // whose token it is
	inARow    int   // commits under the token
	terminal  bool
	cancel    bool      // people asked for it
	cancelled bool      // and were told that it is so
	signalled time.Time // a claim taken shortly before was revoked, which its holder learns with a heartbeat
}

// working is a node at work.
type working struct {
	host    *host
	ctx     context.Context
	run     string
	token   claim.Token
	since   time.Time // when its claim was seen to be another's, or nobody's
	revoked bool      // by a signal: it learns of that with the next heartbeat
}

func (f *fleet) breaks(format string, args ...any) {
	f.broken = append(f.broken, fmt.Sprintf(format, args...))
	f.tell("BROKEN: "+format, args...)
}

// RunID and CheckpointID implement IDs.
func (f *fleet) RunID() string        { f.ids++; return fmt.Sprintf("r%d", f.ids) }
func (f *fleet) CheckpointID() string { f.ids++; return fmt.Sprintf("c%d", f.ids) }

type simNone struct{}

type simMark struct {
	Marks []string `json:"marks"`
}

// nodes are the node types of a host.
func (f *fleet) nodes(h *host) *node.Registry {
	marked := func(name string, do func(ctx context.Context, call *node.Call) error) node.Type {
		return node.Of(name, 1, func(ctx context.Context, _ simNone) (simMark, error) {
			call, _ := node.FromContext(ctx)
			defer f.begins(h, ctx, call)()
			if err := do(ctx, call); err != nil {
				return simMark{}, err
			}
			return simMark{[]string{call.Node}}, nil
		})
	}
	return node.NewRegistry().Add(
		marked("work", func(ctx context.Context, _ *node.Call) error {
			for range 1 + f.rng.IntN(3) {
				d := time.Duration(f.rng.IntN(2000)) * time.Millisecond
				if f.rng.IntN(12) == 0 {
					d = time.Duration(f.rng.IntN(3)) * simTTL
				}
				if err := h.sleep(ctx, d); err != nil {
					return err
				}
			}
			if f.trouble && f.rng.IntN(30) == 0 {
				if err := h.sleep(ctx, 8*simTTL); err != nil {
					return err
				}
			}
			if f.trouble && f.rng.IntN(10) == 0 {
				return errors.New("no luck")
			}
			return nil
		}),
		marked("nap", func(_ context.Context, call *node.Call) error {
			if until := call.PlannedAt.Add(7 * time.Second); call.Now().Before(until) {
				return node.Snooze(until)
			}
			return nil
		}),
		marked("ask", func(ctx context.Context, _ *node.Call) error {
			if _, ok, err := node.Answered[string](ctx, ""); ok || err != nil {
				return err
			}
			return node.Ask(node.Question{Prompt: "go on?"})
		}),
	)
}

// begins notes that a node works, and looks whether somebody else believes to be at the same
// task.
func (f *fleet) begins(h *host, ctx context.Context, call *node.Call) (ends func()) {
	task := call.Task
	r := f.runs[call.Run]
	w := &working{host: h, ctx: ctx, run: call.Run, token: h.leased[call.Run], revoked: f.now.Sub(r.signalled) < simTTL}
	for _, other := range f.working[task] {
		// Who was frozen learns late that its claim is another's.
		if !other.host.dead && !other.host.ever && !other.revoked && !w.revoked && other.ctx.Err() == nil {
			f.breaks("task %s begins on host %d while host %d works on it", task, h.id, other.host.id)
		}
	}
	if r.cancelled && f.now.Sub(r.signalled) > simTTL && !h.ever {
		f.breaks("task %s begins on host %d after %s was cancelled", task, h.id, call.Run)
	}
	f.working[task] = append(f.working[task], w)
	held := map[string]bool{}
	for _, ws := range f.working {
		for _, w := range ws {
			if w.host == h && w.ctx.Err() == nil {
				held[w.run] = true
			}
		}
	}
	if len(held) > simHolds {
		f.breaks("host %d drives %d runs at once", h.id, len(held))
	}
	return func() {
		f.working[task] = slices.DeleteFunc(f.working[task], func(o *working) bool { return o == w })
	}
}

// lost looks whether somebody goes on working under a claim that is not its own any more, although it
// has had time to find out.
func (f *fleet) lost() {
	for _, task := range slices.Sorted(maps.Keys(f.working)) {
		for _, w := range f.working[task] {
			if w.host.dead || w.host.frozen || w.ctx.Err() != nil || f.runs[w.run].token == w.token {
				w.since = time.Time{}
				continue
			}
			if w.since.IsZero() {
				w.since = f.now
			}
			if f.now.Sub(w.since) > simTTL && f.now.Sub(w.host.thawed) > simTTL {
				f.breaks("host %d works on task %s, whose claim it lost %v ago", w.host.id, task, f.now.Sub(w.since))
			}
		}
	}
}

// late looks whether a host that was told to stop takes too long for it.
func (f *fleet) late() {
	for _, h := range f.hosts {
		if h.stopping && !h.over && !h.dead && !h.frozen && f.now.Sub(h.stopped) > simStopping && f.now.Sub(h.thawed) > simStopping {
			f.breaks("host %d was told to stop %v ago", h.id, f.now.Sub(h.stopped))
		}
	}
}

// leaves looks at what a host leaves that was shut down in order.
func (f *fleet) leaves(h *host) {
	h.over = true
	for i := range simRuns {
		id := fmt.Sprintf("run-%d", i)
		if r := f.runs[id]; r == nil || r.token == "" || r.holder != h || h.failed || h.ever {
			continue // or trouble kept it from knowing what it holds, or from giving it back
		}
		if info, err := f.store.InspectRun(context.Background(), backend.System(), id); err == nil && f.now.Sub(info.ClaimedAt) < simTTL/2 {
			f.breaks("host %d has stopped and still holds %s", h.id, id)
		}
	}
}

// simGraph has a node more in its second version, which half of the runs are of.
const simGraph = `
id: sim
fields: {marks: {schema: {type: array, items: {type: string}}, reducer: append}}
nodes:
  a: {use: work, retry: {max_attempts: 50, backoff: {initial: 1s}}}
  b: {use: work, retry: {max_attempts: 50, backoff: {initial: 1s}}}
  c: {use: nap}
  d: {use: ask}
  z: {use: work, retry: {max_attempts: 50, backoff: {initial: 1s}}}
edges:
  i: {from: $start, to: a}
  ab: {from: a, to: b}
  ac: {from: a, to: c}
  ad: {from: a, to: d}
  j: {from: [b, c, d], to: z}
outputs: {marks: {from: marks}}
`

const simSecond = `
  y: {use: work, retry: {max_attempts: 50, backoff: {initial: 1s}}}
edges:
  y: {from: z, to: y}
`

// boot makes a host with an engine, which serves.
func (f *fleet) boot(serves bool) (*host, *Engine) {
	h := &host{sim: f.simulation, id: len(f.hosts), leased: map[string]claim.Token{}}
	if serves {
		h.fault = f.fault
	}
	if f.trouble {
		h.skew = time.Duration(f.rng.IntN(1200)-600) * time.Second
	}
	f.hosts = append(f.hosts, h)
	cfg := Config{
		Backend: &simStore{Store: f.store, fleet: f, host: h}, Nodes: f.nodes(h), Clock: h, IDs: f,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		TTL:    simTTL, Concurrency: simHolds, PollInterval: 2 * time.Second, CommitBudget: simBudget, scheduler: h,
	}
	switch h.fault {
	case "too many runs at once":
		cfg.Concurrency = simRuns
	case "a commit budget that is ignored":
		cfg.CommitBudget = 100
	}
	e, err := New(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	h.engine = e
	if serves {
		h.Go(func() {
			if err := e.Run(context.Background()); err != nil && !(h.stopping && errors.Is(err, ErrStopped)) {
				f.breaks("Run of host %d answers %v", h.id, err)
			}
			f.tell("host %d has stopped", h.id)
			f.leaves(h)
			if c := h.last; c != nil && h.fault == "a commit after the shutdown" {
				_, _ = e.store.Commit(context.Background(), backend.System(), *c)
			}
		})
	}
	return h, e
}

// mixUp plants a graph cache that holds a version for another.
func (f *fleet) mixUp() {
	if f.fault != "a stale graph cache" {
		return
	}
	for _, h := range f.hosts[1:] {
		g := h.engine.graphs
		g.mu.Lock()
		if p := g.owned[ownedRef{backend.Tenantless(), f.refs[0]}]; p != nil {
			g.owned[ownedRef{backend.Tenantless(), f.refs[1]}] = p
		}
		g.mu.Unlock()
	}
}

// simulate plays one seed and answers its story and what was broken.
func simulate(t *testing.T, seed uint64, fault string) (story string, broken []string) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{
			simulation: &simulation{t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: simEpoch},
			fault:      fault, trouble: true, runs: map[string]*simRun{}, working: map[string][]*working{},
		}
		tokens := 0
		f.store = memory.New(memory.Options{
			Now:      func() time.Time { f.mu.Lock(); defer f.mu.Unlock(); return f.now },
			NewToken: func() claim.Token { tokens++; return claim.Token(fmt.Sprintf("t%d", tokens)) },
		})
		ctx, cancel := context.WithCancel(context.Background())
		var err error
		if f.announced, err = f.store.Subscribe(ctx); err != nil {
			t.Fatal(err)
		}
		f.hostOf, f.people = f.boot(false)
		for range simHosts {
			f.boot(true)
		}
		f.play()
		for _, h := range f.hosts {
			f.kill(h)
		}
		cancel()
		synctest.Wait()
		story, broken = f.story.String(), f.broken
	})
	return story, broken
}

// play goes on until every run has ended.
func (f *fleet) play() {
	f.hostOf.Go(func() {
		for i, text := range []string{simGraph, strings.Replace(simGraph, "\nedges:\n", simSecond, 1)} {
			doc, err := graph.ParseYAML([]byte(text))
			if err == nil {
				f.refs[i], err = f.people.Publish(context.Background(), doc)
			}
			if err != nil {
				f.t.Error(err)
			}
		}
		for i := range simRuns {
			id := fmt.Sprintf("run-%d", i)
			f.runs[id] = &simRun{}
			for {
				_, err := f.people.Start(context.Background(), f.refs[i%2], nil, StartOptions{ID: id})
				if err == nil || errors.Is(err, backend.ErrConflict) { // or its answer was lost before
					break
				}
				if backend.Classify(err) == backend.Permanent {
					f.t.Error(err)
					break
				}
			}
		}
	})
	f.look()
	for f.now.Before(simEpoch.Add(simTrouble + simPatience)) {
		f.trouble = f.now.Before(simEpoch.Add(simTrouble))
		if f.trouble && f.rng.IntN(150) == 0 {
			f.goWrong()
		}
		f.announce()
		if !f.step() {
			f.breaks("nothing is left to happen")
			return
		}
		f.lost()
		f.late()
		f.mixUp()
		if len(f.broken) > 0 || f.ended() {
			break
		}
	}
	if len(f.broken) == 0 {
		f.judge()
	}
}

// look lets people look every few seconds, answer what is asked, free what is poisoned, and now and then
// cancel.
func (f *fleet) look() {
	f.hostOf.AfterFunc(time.Duration(1+f.rng.IntN(5))*time.Second, func() {
		ctx := context.Background()
		for i := range simRuns {
			id := fmt.Sprintf("run-%d", i)
			r, err := f.people.Inspect(ctx, id)
			if err != nil {
				continue
			}
			if !r.Poison.At.IsZero() {
				_, _ = f.people.RetryPoisoned(ctx, id)
			}
			for _, q := range r.OpenInterrupts() {
				if _, err := f.people.Resolve(ctx, id, q.ID, "yes"); err == nil && f.open(id, q.ID) {
					f.breaks("%s of %s was answered, and is open", q.ID, id)
				}
			}
			if f.trouble && f.rng.IntN(100) == 0 {
				f.runs[id].cancel = true
				if _, err := f.people.Cancel(ctx, id, "enough"); err == nil {
					f.runs[id].cancelled = true
				}
			}
		}
		f.look()
	})
}

func (f *fleet) open(id, interrupt string) bool {
	d, err := f.store.FetchRun(context.Background(), backend.System(), id)
	return err == nil && slices.ContainsFunc((&Run{Document: d}).OpenInterrupts(), func(q run.Interrupt) bool { return q.ID == interrupt })
}

// goWrong crashes a host or shuts one down, in whose place another comes, or freezes one, which thaws after a
// while.
func (f *fleet) goWrong() {
	alive := slices.DeleteFunc(slices.Clone(f.hosts[1:]), func(h *host) bool { return h.dead || h.stopping })
	h := alive[f.rng.IntN(len(alive))]
	switch f.rng.IntN(3) {
	case 0:
		f.tell("host %d crashes", h.id)
		f.kill(h)
		f.boot(true)
	case 1:
		if h.frozen {
			return
		}
		f.tell("host %d freezes", h.id)
		h.frozen, h.ever = true, true
		f.hostOf.AfterFunc(time.Duration(f.rng.IntN(3*int(simTTL))), func() {
			f.tell("host %d thaws", h.id)
			h.frozen, h.thawed = false, f.now
		})
	case 2:
		f.tell("host %d is told to stop", h.id)
		h.stopping, h.stopped = true, f.now
		h.Go(func() { _ = h.engine.Shutdown(context.Background()) })
		f.boot(true)
	}
}

// announce passes on what the store announced, one host after the other.
func (f *fleet) announce() {
	select {
	case <-f.announced:
	default:
		return
	}
	for _, h := range f.hosts {
		for _, ch := range h.wakes {
			if f.fault == "lost poll" {
				continue
			}
			select {
			case ch <- struct{}{}:
				synctest.Wait()
			default:
			}
		}
	}
}

func (f *fleet) ended() bool {
	if len(f.runs) < simRuns {
		return false
	}
	for _, r := range f.runs {
		if !r.terminal {
			return false
		}
	}
	return true
}

// judge looks at how everything ended.
func (f *fleet) judge() {
	for i := range simRuns {
		id := fmt.Sprintf("run-%d", i)
		r := f.runs[id]
		d, err := f.store.FetchRun(context.Background(), backend.System(), id)
		if err != nil {
			f.breaks("%s: %v", id, err)
			continue
		}
		if r.cancelled || r.cancel && d.Status == run.Cancelled {
			if d.Status != run.Cancelled {
				f.breaks("%s is %s at the end, and was cancelled", id, d.Status)
			}
			continue
		}
		var out simMark
		if err := json.Unmarshal(d.Output, &out); d.Status != run.Done || err != nil {
			f.breaks("%s is %s at the end (%+v)", id, d.Status, d.Failure)
			continue
		}
		slices.Sort(out.Marks)
		want := []string{"a", "b", "c", "d", "z"}
		if i%2 == 1 {
			want = []string{"a", "b", "c", "d", "y", "z"}
		}
		if !slices.Equal(out.Marks, want) {
			f.breaks("%s counted %v, want each of %v once", id, out.Marks, want)
		}
	}
}
