package belaytest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

// Epoch is where the clock of New stands at first.
var Epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// Engine is an engine of a test.
type Engine struct {
	*belay.Engine
	// Store is what the engine works on.
	Store backend.Store
	// Clock is the engine's; nil when the test gave another one than a virtual clock.
	Clock *lifecycle.VirtualClock

	t     testing.TB
	ttl   time.Duration
	wakes int // maxWakes
}

// New makes an engine for a test. Of the configuration Nodes is required; what else is left out
// becomes: Clock, a virtual one that stands at Epoch; Backend, an empty memory store on that clock;
// Logger, one that writes warnings and errors to the test's log. A configuration that cannot be
// used fails the test.
func New(t testing.TB, cfg belay.Config) *Engine {
	t.Helper()
	if cfg.Clock == nil {
		cfg.Clock = lifecycle.NewVirtualClock(Epoch)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	if cfg.Backend == nil {
		cfg.Backend = memory.New(memory.Options{Now: cfg.Clock.Now, Limits: cfg.Limits})
	}
	inner, err := belay.New(cfg)
	if err != nil {
		t.Fatalf("belaytest: %v", err)
	}
	e := &Engine{Engine: inner, Store: cfg.Backend, t: t, ttl: cfg.TTL, wakes: maxWakes}
	if e.ttl == 0 {
		e.ttl = time.Minute // as the engine's default is
	}
	e.Clock, _ = cfg.Clock.(*lifecycle.VirtualClock)
	return e
}

// MustPublish publishes a graph, and fails the test with every diagnostic when it cannot.
func (e *Engine) MustPublish(doc *belay.Graph) belay.GraphRef {
	e.t.Helper()
	ref, err := e.Publish(e.t.Context(), doc)
	if err != nil {
		e.t.Fatalf("belaytest: publishing: %v", err)
	}
	return ref
}

// MustPublishFile publishes the graph of a file, as belay.ReadGraph reads it.
func (e *Engine) MustPublishFile(path string) belay.GraphRef {
	e.t.Helper()
	doc, err := belay.ReadGraph(path)
	if err != nil {
		e.t.Fatalf("belaytest: %v", err)
	}
	return e.MustPublish(doc)
}

// MustPublishYAML publishes a graph that is written in the test.
func (e *Engine) MustPublishYAML(text string) belay.GraphRef {
	e.t.Helper()
	doc, err := graph.ParseYAML([]byte(text))
	if err != nil {
		e.t.Fatalf("belaytest: %v", err)
	}
	return e.MustPublish(doc)
}

// MustStart starts a run of no tenant. For one of a tenant use e.For(tenant).Start; everything else
// here works on runs of any owner.
func (e *Engine) MustStart(ref belay.GraphRef, input any) *belay.Run {
	e.t.Helper()
	r, err := e.Start(e.t.Context(), ref, input, belay.StartOptions{})
	if err != nil {
		e.t.Fatalf("belaytest: starting: %v", err)
	}
	return r
}

// MustResolve answers the only open question of a run. It fails the test when there is none, or
// more than one: then say which, with Resolve.
func (e *Engine) MustResolve(id string, answer any) *belay.Run {
	e.t.Helper()
	r := e.MustInspect(id)
	open := r.OpenInterrupts()
	if len(open) != 1 {
		e.t.Fatalf("belaytest: run %s is %s and asks %d questions, want one to answer", id, r.Status, len(open))
	}
	client := &e.Client
	if tenant, ok := r.Owner.Tenant(); ok {
		client = e.For(tenant)
	}
	r, err := client.Resolve(e.t.Context(), id, open[0].ID, answer)
	if err != nil {
		e.t.Fatalf("belaytest: resolving: %v", err)
	}
	return r
}

// MustInspect reads a run, whoever owns it.
func (e *Engine) MustInspect(id string) *belay.Run {
	e.t.Helper()
	info, err := e.Store.InspectRun(e.t.Context(), backend.System(), id)
	if err != nil {
		e.t.Fatalf("belaytest: run %s: %v", id, err)
	}
	return &belay.Run{
		Document: info.Document, Owner: info.Owner, Wake: info.Wake, ClaimedAt: info.ClaimedAt,
		Attempts: info.Attempts, Abandons: info.Abandons, Poison: info.Poison,
	}
}

// Serve lets the engine drive what is due in the background until the test ends, as a service does.
func (e *Engine) Serve() {
	e.t.Helper()
	over := make(chan error, 1)
	go func() { over <- e.Run(context.Background()) }()
	e.t.Cleanup(func() {
		if err := errors.Join(e.Shutdown(context.Background()), <-over); err != nil {
			e.t.Errorf("belaytest: serving: %v", err)
		}
	})
}

// Adopt copies a run, and its graph, out of a host's transaction into this engine's store, where it can be
// driven without a commit of the transaction. The run must have been started there, by
// StartIn, and not have moved since. tx is the store that is bound to the transaction.
func (e *Engine) Adopt(tx backend.Starter, id string) *belay.Run {
	e.t.Helper()
	ctx := e.t.Context()
	info, err := tx.InspectRun(ctx, backend.System(), id)
	if err != nil {
		e.t.Fatalf("belaytest: run %s in the transaction: %v", id, err)
	}
	d := info.Document
	if d.Seq != 1 {
		e.t.Fatalf("belaytest: run %s has moved on to checkpoint %d: only one that was just started can be adopted", id, d.Seq)
	}
	raw, err := tx.FetchGraph(ctx, info.Owner, d.Graph)
	if err != nil {
		e.t.Fatalf("belaytest: graph %s of run %s in the transaction: %v", d.Graph.ID, id, err)
	}
	page, err := tx.ListEvents(ctx, backend.System(), id, backend.EventQuery{Limit: backend.MaxLimit})
	if err != nil {
		e.t.Fatalf("belaytest: events of run %s in the transaction: %v", id, err)
	}
	if err := e.Store.SaveGraph(ctx, info.Owner, d.Graph, raw); err != nil {
		e.t.Fatalf("belaytest: adopting graph %s: %v", d.Graph.ID, err)
	}
	copied := backend.Initialization{CheckpointID: info.CheckpointID, Proposal: run.Proposal{
		Document: d, Events: page.Events, Type: info.Type, Now: d.UpdatedAt,
		Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseAt, At: info.Wake},
	}}
	if _, err := e.Store.InsertRun(ctx, info.Owner, copied); err != nil {
		e.t.Fatalf("belaytest: adopting run %s: %v", id, err)
	}
	return e.MustInspect(id)
}
