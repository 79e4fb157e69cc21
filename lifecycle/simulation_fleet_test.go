package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

var (
	simSeeds = flag.Int("sim.seeds", 40, "how many fleets are simulated")
	simSeed  = flag.Uint64("sim.seed", 0, "simulate this one, and print its story")
)

const (
	simTTL   = 12 * time.Second
	simHosts = 3
	simRuns  = 6
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

	runs    map[string]*simRun
	broken  []string
	working map[string][]*working // by task
}

// simRun is what is known of a run from what the store acknowledged.
type simRun struct {
	seq       int64
	token     claim.Token
	terminal  bool
	recovers  int
	signalled time.Time // a claim taken shortly before was revoked, which its holder learns with a heartbeat
}

// working is a node at work.
type working struct {
	host    *host
	ctx     context.Context
	run     string
	revoked bool // by a signal: it learns of that with the next heartbeat
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
	w := &working{host: h, ctx: ctx, run: call.Run, revoked: f.now.Sub(f.runs[call.Run].signalled) < simTTL}
	for _, other := range f.working[task] {
		// Who was frozen learns late that its claim is another's.
		if !other.host.dead && !other.host.ever && !other.revoked && !w.revoked && other.ctx.Err() == nil {
			f.breaks("task %s begins on host %d while host %d works on it", task, h.id, other.host.id)
		}
	}
	f.working[task] = append(f.working[task], w)
	return func() {
		f.working[task] = slices.DeleteFunc(f.working[task], func(o *working) bool { return o == w })
	}
}

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

// boot makes a host with an engine, which serves.
func (f *fleet) boot(serves bool) (*host, *Engine) {
	h := &host{sim: f.simulation, id: len(f.hosts)}
	if serves {
		h.fault = f.fault
	}
	if f.trouble {
		h.skew = time.Duration(f.rng.IntN(1200)-600) * time.Second
	}
	f.hosts = append(f.hosts, h)
	e, err := New(Config{
		Backend: &simStore{Store: f.store, fleet: f, host: h}, Nodes: f.nodes(h), Clock: h, IDs: f,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		TTL:    simTTL, Concurrency: 3, PollInterval: 2 * time.Second, CommitBudget: 2, scheduler: h,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	if serves {
		h.Go(func() {
			if err := e.Run(context.Background()); err != nil {
				f.breaks("Run of host %d answers %v", h.id, err)
			}
		})
	}
	return h, e
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
	var ref graph.Ref
	f.hostOf.Go(func() {
		doc, err := graph.ParseYAML([]byte(simGraph))
		if err == nil {
			ref, err = f.people.Publish(context.Background(), doc)
		}
		if err != nil {
			f.t.Error(err)
		}
		for i := range simRuns {
			id := fmt.Sprintf("run-%d", i)
			f.runs[id] = &simRun{}
			if _, err := f.people.Start(context.Background(), ref, nil, StartOptions{ID: id}); err != nil {
				f.t.Error(err)
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
		if len(f.broken) > 0 || f.ended() {
			break
		}
	}
	if len(f.broken) == 0 {
		f.judge()
	}
}

// look lets people look every few seconds, answer what is asked, and free what is poisoned.
func (f *fleet) look() {
	f.hostOf.AfterFunc(3*time.Second, func() {
		for i := range simRuns {
			id := fmt.Sprintf("run-%d", i)
			r, err := f.people.Inspect(context.Background(), id)
			if err != nil {
				continue
			}
			if !r.Poison.At.IsZero() {
				f.runs[id].recovers++
				_, _ = f.people.RetryPoisoned(context.Background(), id)
			}
			for _, q := range r.OpenInterrupts() {
				_, _ = f.people.Resolve(context.Background(), id, q.ID, "yes")
			}
		}
		f.look()
	})
}

// goWrong crashes a host, which comes back as another, freezes one, or thaws it.
func (f *fleet) goWrong() {
	alive := slices.DeleteFunc(slices.Clone(f.hosts[1:]), func(h *host) bool { return h.dead })
	h := alive[f.rng.IntN(len(alive))]
	switch f.rng.IntN(2) {
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
			h.frozen = false
		})
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
		d, err := f.store.FetchRun(context.Background(), backend.System(), id)
		if err != nil {
			f.breaks("%s: %v", id, err)
			continue
		}
		var out simMark
		if err := json.Unmarshal(d.Output, &out); d.Status != run.Done || err != nil {
			f.breaks("%s is %s at the end (%+v)", id, d.Status, d.Failure)
			continue
		}
		slices.Sort(out.Marks)
		if want := []string{"a", "b", "c", "d", "z"}; !slices.Equal(out.Marks, want) {
			f.breaks("%s counted %v, want each of %v once", id, out.Marks, want)
		}
	}
}

// simStore is the store as one host sees it: every call is two points, before which it may fail and
// after which its answer may be lost.
type simStore struct {
	backend.Store
	fleet *fleet
	host  *host
}

func simCall[T any](s *simStore, what string, call func() (T, error)) (T, error) {
	var zero T
	s.host.live()
	s.host.point(what)
	if f := s.fleet; f.trouble && f.rng.IntN(40) == 0 {
		f.tell("host %d: %s fails", s.host.id, what)
		return zero, &backend.InfrastructureError{Op: what, Nature: backend.Transient, Err: errors.New("simulated")}
	}
	out, err := call()
	s.host.point(what + ": done")
	if f := s.fleet; err == nil && f.trouble && f.rng.IntN(40) == 0 {
		f.tell("host %d: the answer of %s is lost", s.host.id, what)
		return zero, &backend.InfrastructureError{Op: what, Nature: backend.Unknown, Err: errors.New("simulated")}
	}
	return out, err
}

func (s *simStore) Features() backend.Features {
	features := s.Store.Features()
	features.Batches, features.ClaimDocuments, features.Wakes = s, s, s
	return features
}

// Subscribe implements backend.Wakes.
func (s *simStore) Subscribe(context.Context) (<-chan struct{}, error) {
	ch := make(chan struct{}, 1)
	s.host.wakes = append(s.host.wakes, ch)
	return ch, nil
}

func (s *simStore) ClaimDueDocuments(ctx context.Context, p claim.Policy) (backend.ClaimedBatch, error) {
	return simCall(s, "claim", func() (backend.ClaimedBatch, error) {
		batch, err := s.fleet.store.ClaimDueDocuments(ctx, p)
		for _, l := range batch.Leases {
			s.fleet.tell("host %d: claims %s", s.host.id, l.Run)
			s.fleet.runs[l.Run].token = l.Token
		}
		return batch, err
	})
}

func (s *simStore) InsertRun(ctx context.Context, owner backend.Owner, in backend.Initialization) (backend.Inserted, error) {
	return simCall(s, "insert", func() (backend.Inserted, error) {
		inserted, err := s.Store.InsertRun(ctx, owner, in)
		if err == nil && !inserted.Replayed {
			s.fleet.runs[in.Document.ID].seq = 1
		}
		return inserted, err
	})
}

func (s *simStore) InsertRuns(ctx context.Context, owner backend.Owner, ins []backend.Initialization) []backend.InsertResult {
	return s.fleet.store.InsertRuns(ctx, owner, ins)
}

func (s *simStore) Commit(ctx context.Context, scope backend.Scope, c backend.Commit) (backend.Committed, error) {
	return simCall(s, "commit", func() (backend.Committed, error) {
		done, err := s.Store.Commit(ctx, scope, c)
		s.committed(c, done, err)
		return done, err
	})
}

func (s *simStore) Commits(ctx context.Context, scope backend.Scope, cs []backend.Commit) []backend.CommitResult {
	answers, err := simCall(s, "commits", func() ([]backend.CommitResult, error) {
		answers := s.fleet.store.Commits(ctx, scope, cs)
		for i, a := range answers {
			s.committed(cs[i], a.Committed, a.Err)
		}
		return answers, nil
	})
	if err != nil {
		answers = make([]backend.CommitResult, len(cs))
		for i := range answers {
			answers[i].Err = err
		}
	}
	return answers
}

// committed judges an acknowledged commit.
func (s *simStore) committed(c backend.Commit, done backend.Committed, err error) {
	if err != nil || done.Replayed {
		return
	}
	f, r := s.fleet, s.fleet.runs[c.Document.ID]
	f.tell("host %d: commits %s to %d, %s", s.host.id, c.Document.ID, c.Document.Seq, c.Document.Status)
	switch {
	case r.terminal:
		f.breaks("a commit to the finished run %s", c.Document.ID)
	case c.Document.Seq != r.seq+1:
		f.breaks("%s went from %d to %d", c.Document.ID, r.seq, c.Document.Seq)
	case c.Token != r.token:
		f.breaks("%s was committed under a claim that is not the last", c.Document.ID)
	}
	r.seq, r.terminal = c.Document.Seq, c.Document.Status.Terminal()
}

func (s *simStore) MutateRun(ctx context.Context, scope backend.Scope, id string, commit checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
	return simCall(s, "mutate", func() (backend.Mutated, error) {
		m, err := s.Store.MutateRun(ctx, scope, id, commit, fn)
		if err == nil && m.Committed && !m.Replayed {
			r := s.fleet.runs[id]
			s.fleet.tell("host %d: signals %s, now at %d", s.host.id, id, m.Document.Seq)
			if m.Document.Seq != r.seq+1 || r.terminal {
				s.fleet.breaks("a signal took %s from %d to %d (finished: %v)", id, r.seq, m.Document.Seq, r.terminal)
			}
			r.seq, r.terminal, r.token = m.Document.Seq, m.Document.Status.Terminal(), ""
			r.signalled = s.fleet.now
			for _, ws := range s.fleet.working {
				for _, w := range ws {
					w.revoked = w.revoked || w.run == id
				}
			}
		}
		return m, err
	})
}

func (s *simStore) FetchRun(ctx context.Context, scope backend.Scope, id string) (*run.Document, error) {
	return simCall(s, "fetch", func() (*run.Document, error) { return s.Store.FetchRun(ctx, scope, id) })
}

func (s *simStore) InspectRun(ctx context.Context, scope backend.Scope, id string) (backend.Info, error) {
	return simCall(s, "inspect", func() (backend.Info, error) { return s.Store.InspectRun(ctx, scope, id) })
}

func (s *simStore) FetchGraph(ctx context.Context, owner backend.Owner, ref graph.Ref) (value.Value, error) {
	return simCall(s, "graph", func() (value.Value, error) { return s.Store.FetchGraph(ctx, owner, ref) })
}

func (s *simStore) RefreshClaim(ctx context.Context, id string, token claim.Token, now time.Time) error {
	_, err := simCall(s, "refresh", func() (simNone, error) { return simNone{}, s.Store.RefreshClaim(ctx, id, token, now) })
	return err
}

func (s *simStore) RefreshClaims(ctx context.Context, held []backend.Held, now time.Time) []error {
	answers, err := simCall(s, "refreshes", func() ([]error, error) {
		if s.fleet.fault == "refreshes that reach nobody" {
			return make([]error, len(held)), nil
		}
		return s.fleet.store.RefreshClaims(ctx, held, now), nil
	})
	if err != nil {
		answers = make([]error, len(held))
		for i := range answers {
			answers[i] = err
		}
	}
	return answers
}

func (s *simStore) ReleaseClaim(ctx context.Context, id string, token claim.Token, p claim.ReleasePolicy) error {
	_, err := simCall(s, "release", func() (simNone, error) { return simNone{}, s.Store.ReleaseClaim(ctx, id, token, p) })
	return err
}

func (s *simStore) AbandonClaim(ctx context.Context, id string, token claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	return simCall(s, "abandon", func() (claim.Disposition, error) { return s.Store.AbandonClaim(ctx, id, token, p) })
}

func TestFleetsFinishTheirRunsWhateverGoesWrong(t *testing.T) {
	if *simSeed != 0 {
		story, broken := simulate(t, *simSeed, "")
		t.Logf("%s\n%q", story, broken)
		if len(broken) > 0 {
			t.Fail()
		}
		return
	}
	for seed := uint64(1); seed <= uint64(*simSeeds); seed++ {
		if _, broken := simulate(t, seed, ""); len(broken) > 0 {
			t.Errorf("seed %d: %q\nsee its story: go test ./lifecycle -run %s -sim.seed %d -v", seed, broken, t.Name(), seed)
		}
	}
}

func TestOneSeedTwiceGivesTheSameStory(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		first, _ := simulate(t, seed, "")
		if second, _ := simulate(t, seed, ""); first != second {
			i := 0
			for i < min(len(first), len(second)) && first[i] == second[i] {
				i++
			}
			t.Fatalf("seed %d differs after %d bytes:\n%s\n---\n%s", seed, i, first[max(0, i-600):min(len(first), i+200)], second[max(0, i-200):min(len(second), i+200)])
		}
	}
}

// What the fleet cannot survive is found.
func TestPlantedFaultsAreFound(t *testing.T) {
	for _, fault := range []string{"refreshes that reach nobody", "late heartbeat", "double launch", "lost wake", "lost poll"} {
		found := uint64(0)
		for seed := uint64(1); seed <= 100 && found == 0; seed++ {
			if _, broken := simulate(t, seed, fault); len(broken) > 0 {
				found = seed
				t.Logf("%s: seed %d: %q", fault, seed, broken)
			}
		}
		if found == 0 {
			t.Errorf("%s: not found in 100 seeds", fault)
		}
	}
}
