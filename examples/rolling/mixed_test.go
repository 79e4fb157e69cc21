//go:build unix

package rolling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// TestTheAdapterKeepsTheContract on the tables of the native store, in what it does by itself there.
func TestTheAdapterKeepsTheContract(t *testing.T) {
	proptest.Conformance(t, func(t proptest.T) proptest.Opened {
		dir, err := os.MkdirTemp("", "rolling")
		if err != nil {
			t.Fatalf("%v", err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		var set atomic.Pointer[time.Time]
		store, err := fromApart(filepath.Join(dir, "runs.db"), func() time.Time {
			if now := set.Load(); now != nil {
				return *now
			}
			return time.Now()
		})
		if err != nil {
			t.Fatalf("%v", err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return proptest.Opened{Store: store, Hooks: proptest.Hooks{SetClock: func(now time.Time) { set.Store(&now) }}}
	}, proptest.Options{Only: []string{"A4", "R1", "R2", "T1", "T2", "T3", "T4", "T5", "E1", "C1", "C2", "C3", "C9"}})
}

const mixedGraph = `
id: mixed
inputs:
  n: {schema: {type: integer}, required: true}
fields:
  left:  {schema: {type: integer}}
  right: {schema: {type: integer}}
  sum:   {schema: {type: integer}}
nodes:
  left:  {use: left, retry: {max_attempts: 5, backoff: {initial: 20ms}}}
  right: {use: right}
  ask:   {use: ask}
  sum:   {use: sum}
edges:
  one:   {from: $start, to: left}
  other: {from: $start, to: right}
  both:  {from: [left, right], to: ask}
  added: {from: ask, to: sum}
  end:   {from: sum, to: $finish}
outputs:
  sum: {from: sum}
`

// mixed is a fleet whose engines have the same database by different backends.
type mixed struct {
	mu      sync.Mutex
	effects map[string]int64           // by idempotency key
	commits map[string]map[string]bool // by run, the kinds of backend that have committed something
}

// TestAFleetOverTheAdapterAndTheNativeStore: engines over both are on one database, and one of each kind
// loses its database in the middle of its work. Every run comes to its right end, in one history.
func TestAFleetOverTheAdapterAndTheNativeStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	native := func() (backend.Store, error) {
		return sqlite.Open(context.Background(), path, sqlite.Options{SharedDirectory: true})
	}
	adapted := func() (backend.Store, error) { return fromApart(path, time.Now) }
	m := &mixed{effects: map[string]int64{}, commits: map[string]map[string]bool{}}
	var engines []*belay.Engine
	var stores []backend.Store
	for i, open := range []func() (backend.Store, error){native, adapted, native, adapted} {
		store, err := open()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		stores, engines = append(stores, store), append(engines, m.engine(t, []string{"native", "adapter"}[i%2], store))
	}
	doc, err := graph.ParseYAML([]byte(mixedGraph))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := engines[0].Publish(t.Context(), doc)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	ended := make([]error, len(engines))
	for i, e := range engines {
		serving.Go(func() { ended[i] = e.Run(context.WithoutCancel(t.Context())) })
	}

	const runs = 120
	ids := make([]string, runs)
	for n := range runs {
		if n == runs/2 { // what these two hold is taken over
			for _, s := range stores[2:] {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			engines = engines[:2]
		}
		started, err := engines[n%len(engines)].Start(t.Context(), ref, map[string]int{"n": n}, belay.StartOptions{Key: fmt.Sprint(n)})
		if err != nil {
			t.Fatal(err)
		}
		ids[n] = started.ID
	}
	for n, id := range ids { // by the other kind than the one that started it
		e := engines[(n+1)%2]
		if r, err := e.Await(t.Context(), id); err != nil || r.Status != run.Waiting {
			t.Fatalf("run %d: %v", n, err)
		}
		if _, err := e.Resolve(t.Context(), id, "go", true); err != nil {
			t.Errorf("run %d: %v", n, err)
		}
	}
	both := 0
	for n, id := range ids {
		r, err := engines[n%2].Await(t.Context(), id)
		if err != nil || r.Status != run.Done || string(r.Output) != fmt.Sprintf(`{"sum":%d}`, 3*n) {
			t.Errorf("run %d: %v", n, err)
			continue
		}
		m.history(t, engines, r)
		if m.kinds(id) == 2 {
			both++
		}
	}
	for _, e := range engines {
		if err := e.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
	serving.Wait()
	if err := errors.Join(ended[:2]...); err != nil {
		t.Error(err)
	}
	for finding, err := range stores[0].Features().Audit.Audit(t.Context(), backend.AuditPolicy{}) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("the audit found %+v", finding)
	}
	t.Logf("%d runs, %d of them with commits by both kinds; %d effects", runs, both, len(m.effects))
	if both == 0 {
		t.Error("no run was driven by both kinds")
	}
	if len(m.effects) != 3*runs {
		t.Errorf("%d effects, not %d", len(m.effects), 3*runs)
	}
}

// kinds is how many kinds of backend have committed something of a run.
func (m *mixed) kinds(id string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.commits[id])
}

// history sees that both kinds read the same history of a run, without a gap.
func (m *mixed) history(t *testing.T, engines []*belay.Engine, r *belay.Run) {
	t.Helper()
	var pages [2]backend.EventPage
	for i := range pages {
		var err error
		if pages[i], err = engines[i].Events(t.Context(), r.ID, backend.EventQuery{Limit: 100}); err != nil {
			t.Fatal(err)
		}
	}
	commits := int64(0)
	for i, e := range pages[0].Events {
		if e.Seq != int64(i)+1 || i >= len(pages[1].Events) || pages[1].Events[i].Type != e.Type {
			t.Errorf("run %s: event %d is %d, %s", r.ID, i, e.Seq, e.Type)
		}
		if e.Type == run.EventCheckpointCommitted {
			if commits++; e.Commit != commits {
				t.Errorf("run %s: commit %d after %d others", r.ID, e.Commit, commits-1)
			}
		}
	}
	if commits != r.Seq || len(pages[1].Events) != len(pages[0].Events) {
		t.Errorf("run %s: %d commits in its history, and its sequence is %d", r.ID, commits, r.Seq)
	}
}

// engine is one over a backend of a kind.
func (m *mixed) engine(t *testing.T, kind string, store backend.Store) *belay.Engine {
	t.Helper()
	e, err := belay.New(belay.Config{
		Backend: store, Nodes: m.nodes(), TTL: ttl, PollInterval: 50 * time.Millisecond, Concurrency: 8, CommitBudget: 1,
		Logger: slog.New(slog.DiscardHandler),
		Observe: func(d *run.Document, _ []run.Event) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.commits[d.ID] == nil {
				m.commits[d.ID] = map[string]bool{}
			}
			m.commits[d.ID][kind] = true
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// perform records an effect once, whoever repeats it.
func (m *mixed) perform(ctx context.Context, what int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := node.IdempotencyKey(ctx)
	if before, there := m.effects[key]; there && before != what {
		return node.Permanent(fmt.Errorf("%d after %d", what, before))
	}
	m.effects[key] = what
	return nil
}

func (m *mixed) nodes() *node.Registry {
	type (
		in struct {
			N int64 `json:"n"`
		}
		left struct {
			Left int64 `json:"left"`
		}
		right struct {
			Right int64 `json:"right"`
		}
		both struct {
			Left  int64 `json:"left"`
			Right int64 `json:"right"`
		}
		sum struct {
			Sum int64 `json:"sum"`
		}
		none struct{}
	)
	return node.NewRegistry().Add(
		node.Of("left", 1, func(ctx context.Context, in in) (left, error) {
			err := m.perform(ctx, in.N)
			if call, _ := node.FromContext(ctx); err == nil && in.N%5 == 0 && call.Attempt == 1 {
				err = errors.New("its answer is lost")
			}
			return left{in.N}, err
		}),
		node.Of("right", 1, func(ctx context.Context, in in) (right, error) { return right{2 * in.N}, m.perform(ctx, in.N) }),
		node.Of("ask", 1, func(ctx context.Context, _ none) (none, error) {
			_, ok, err := node.Answered[bool](ctx, "go")
			if err != nil || !ok {
				return none{}, cmp.Or(err, node.Ask(node.Question{ID: "go", Schema: value.Value(`{"type":"boolean"}`)}))
			}
			return none{}, nil
		}),
		node.Of("sum", 1, func(ctx context.Context, in both) (sum, error) {
			return sum{in.Left + in.Right}, m.perform(ctx, in.Left+in.Right)
		}),
	)
}
