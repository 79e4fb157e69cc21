package lifecycle_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

func TestMain(m *testing.M) {
	// What the package pgtest keeps as long as a process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/jackc/pgx/v5/pgxpool.(*Pool).backgroundHealthCheck"))
}

// epoch is where virtual clocks begin.
var epoch = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// quiet is a logger that keeps nothing.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// none is the input, or output, of a node that has none.
type none struct{}

// act is a node type without state: its function only acts.
func act(name string, f func(ctx context.Context) error, opts ...node.Option) node.Type {
	return node.Of(name, 1, func(ctx context.Context, _ none) (none, error) { return none{}, f(ctx) }, opts...)
}

// parse reads a graph written as YAML.
func parse(t testing.TB, text string) *graph.Document {
	t.Helper()
	doc, err := graph.ParseYAML([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// single is a graph of one node.
const single = `
id: single
nodes: {work: {use: work}}
edges: {in: {from: $start, to: work}, out: {from: work, to: $finish}}
`

// options of an engine in a test.
type options = lifecycle.Config

// newEngine makes an engine on a store with the given node types.
func newEngine(t testing.TB, store backend.Store, cfg options, types ...node.Type) *lifecycle.Engine {
	t.Helper()
	cfg.Backend = store
	cfg.Nodes = node.NewRegistry().Add(types...)
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	e, err := lifecycle.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// publish publishes a graph written as YAML.
func publish(t testing.TB, c *lifecycle.Client, text string) graph.Ref {
	t.Helper()
	ref, err := c.Publish(t.Context(), parse(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// start starts a run and fails the test when that does not work.
func start(t testing.TB, c *lifecycle.Client, ref graph.Ref, input any, opts lifecycle.StartOptions) *lifecycle.Run {
	t.Helper()
	r, err := c.Start(t.Context(), ref, input, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// drain drains, and fails the test when that does not work.
func drain(t testing.TB, e *lifecycle.Engine) lifecycle.Drained {
	t.Helper()
	d, err := e.Drain(t.Context(), lifecycle.DrainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// inspect reads a run.
func inspect(t testing.TB, c *lifecycle.Client, id string) *lifecycle.Run {
	t.Helper()
	r, err := c.Inspect(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantStatus fails the test unless the run has the status.
func wantStatus(t testing.TB, r *lifecycle.Run, want run.Status) {
	t.Helper()
	if r.Status != want {
		t.Fatalf("run %s is %s (failure %+v), want %s", r.ID, r.Status, r.Failure, want)
	}
}

// faulty is a store in which every operation can be made to fail: fail is asked before and
// after the inner operation took effect.
type faulty struct {
	backend.Store
	fail     func(op string, after bool) error
	features func(*backend.Features)
}

var errInjected = errors.New("injected")

// transient and unknown are infrastructure failures.
func transient(op string) error {
	return &backend.InfrastructureError{Op: op, Nature: backend.Transient, Err: errInjected}
}

func unknown(op string) error {
	return &backend.InfrastructureError{Op: op, Nature: backend.Unknown, Err: errInjected}
}

func around[T any](f *faulty, op string, call func() (T, error)) (T, error) {
	var zero T
	if f.fail != nil {
		if err := f.fail(op, false); err != nil {
			return zero, err
		}
	}
	out, err := call()
	if f.fail != nil && err == nil {
		if err := f.fail(op, true); err != nil {
			return zero, err
		}
	}
	return out, err
}

func (f *faulty) Features() backend.Features {
	features := f.Store.Features()
	features.Batches = nil
	if inner := features.ClaimDocuments; inner != nil {
		features.ClaimDocuments = faultyDocuments{f, inner}
	}
	if f.features != nil {
		f.features(&features)
	}
	return features
}

type faultyDocuments struct {
	f     *faulty
	inner backend.ClaimDocuments
}

func (d faultyDocuments) ClaimDueDocuments(ctx context.Context, p claim.Policy) (backend.ClaimedBatch, error) {
	return around(d.f, "claim", func() (backend.ClaimedBatch, error) { return d.inner.ClaimDueDocuments(ctx, p) })
}

func (f *faulty) ClaimDue(ctx context.Context, p claim.Policy) (claim.Batch, error) {
	return around(f, "claim", func() (claim.Batch, error) { return f.Store.ClaimDue(ctx, p) })
}

func (f *faulty) InsertRun(ctx context.Context, owner backend.Owner, in backend.Initialization) (backend.Inserted, error) {
	return around(f, "insert", func() (backend.Inserted, error) { return f.Store.InsertRun(ctx, owner, in) })
}

func (f *faulty) FetchRun(ctx context.Context, scope backend.Scope, id string) (*run.Document, error) {
	return around(f, "fetch", func() (*run.Document, error) { return f.Store.FetchRun(ctx, scope, id) })
}

func (f *faulty) FetchGraph(ctx context.Context, owner backend.Owner, ref graph.Ref) (value.Value, error) {
	return around(f, "graph", func() (value.Value, error) { return f.Store.FetchGraph(ctx, owner, ref) })
}

func (f *faulty) Commit(ctx context.Context, scope backend.Scope, c backend.Commit) (backend.Committed, error) {
	return around(f, "commit", func() (backend.Committed, error) { return f.Store.Commit(ctx, scope, c) })
}

func (f *faulty) MutateRun(ctx context.Context, scope backend.Scope, id string, commit checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
	return around(f, "mutate", func() (backend.Mutated, error) { return f.Store.MutateRun(ctx, scope, id, commit, fn) })
}

func (f *faulty) RefreshClaim(ctx context.Context, id string, token claim.Token, now time.Time) error {
	_, err := around(f, "refresh", func() (none, error) { return none{}, f.Store.RefreshClaim(ctx, id, token, now) })
	return err
}

func (f *faulty) ReleaseClaim(ctx context.Context, id string, token claim.Token, p claim.ReleasePolicy) error {
	_, err := around(f, "release", func() (none, error) { return none{}, f.Store.ReleaseClaim(ctx, id, token, p) })
	return err
}

func (f *faulty) AbandonClaim(ctx context.Context, id string, token claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	return around(f, "abandon", func() (claim.Disposition, error) { return f.Store.AbandonClaim(ctx, id, token, p) })
}

// whenAbandoned is an observer of abandons only.
func whenAbandoned(f func(lifecycle.Abandon)) []lifecycle.Observer {
	return []lifecycle.Observer{{Abandoned: func(_ context.Context, a lifecycle.Abandon) { f(a) }}}
}

func newMemory(clock lifecycle.Clock) *memory.Store {
	if clock == nil {
		return memory.New(memory.Options{})
	}
	return memory.New(memory.Options{Now: clock.Now})
}
