package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/internal/pgtest"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

const doubling = `
id: doubling
inputs:
  n: {schema: {type: integer}, required: true}
fields:
  twice: {schema: {type: integer}}
nodes:
  double: {use: double}
edges:
  start: {from: $start, to: double}
  end:   {from: double, to: $finish}
outputs:
  twice: {from: twice}
`

// TestH32AnEngineStartsInHostTransactions (H32): a run that was started in the host's transaction is done after
// the host's commit, and was never there after its rollback.
func TestH32AnEngineStartsInHostTransactions(t *testing.T) {
	type input struct {
		N int `json:"n"`
	}
	type output struct {
		Twice int `json:"twice"`
	}
	a := direct(t)
	store := newStore(t, a, postgres.Options{})
	nodes := node.NewRegistry().Add(node.Of("double", 1, func(_ context.Context, in input) (output, error) {
		return output{2 * in.N}, nil
	}))
	engine, err := belay.New(belay.Config{Backend: store, Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "graph.yaml")
	if err := os.WriteFile(path, []byte(doubling), 0o600); err != nil {
		t.Fatal(err)
	}
	doc, err := belay.ReadGraph(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ref, err := engine.Publish(ctx, doc)
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(running) }()

	start := func(id string, fate error) error {
		return pgx.BeginFunc(ctx, a.pool(), func(tx pgx.Tx) error {
			if _, err := engine.StartIn(ctx, store.WithTx(tx), ref, input{21}, belay.StartOptions{ID: id}); err != nil {
				return err
			}
			return fate
		})
	}
	changedMind := errors.New("the host changed its mind")
	if err := start("never", changedMind); !errors.Is(err, changedMind) {
		t.Fatal(err)
	}
	if err := start("kept", nil); err != nil {
		t.Fatal(err)
	}
	engine.Wake()
	done, err := engine.Await(ctx, "kept")
	if err != nil || done.Status != run.Done {
		t.Fatalf("%+v, %v", done, err)
	}
	if _, err := engine.Fetch(ctx, "never"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("the run of the rolled-back transaction: %v", err)
	}
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// skewed is the clock of a host that is wrong by so much.
type skewed struct {
	lifecycle.Clock
	by time.Duration
}

func (c skewed) Now() time.Time { return c.Clock.Now().Add(c.by) }

// TestH5EnginesWithSkewedClocksShareADatabase: two engines whose hosts' clocks are twenty minutes apart work on
// one database as if they agreed: every run is launched once, none is late, and the instants are the database's.
func TestH5EnginesWithSkewedClocksShareADatabase(t *testing.T) {
	type input struct {
		N int `json:"n"`
	}
	type output struct {
		Twice int `json:"twice"`
	}
	a := direct(t)
	schema := pgtest.Schema(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	running, stop := context.WithCancel(ctx)
	defer stop()
	var launches atomic.Int64
	var engines []*belay.Engine
	var stores []*postgres.Store
	ended := make(chan error, 2)
	// Asked for before an engine is: what an engine knows of the database's clock is behind by as long as the answer
	// took, but never before the first answer.
	before, err := newStore(t, a, postgres.Options{Schema: schema, PollOnly: true}).Now(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		store := newStore(t, a, postgres.Options{Schema: schema, PollInterval: 50 * time.Millisecond})
		nodes := node.NewRegistry().Add(node.Of("double", 1, func(_ context.Context, in input) (output, error) {
			launches.Add(1)
			return output{2 * in.N}, nil
		}))
		engine, err := belay.New(belay.Config{Backend: store, Nodes: nodes, Clock: skewed{lifecycle.SystemClock(), by}})
		if err != nil {
			t.Fatal(err)
		}
		engines, stores = append(engines, engine), append(stores, store)
		go func() { ended <- engine.Run(running) }()
	}
	path := filepath.Join(t.TempDir(), "graph.yaml")
	if err := os.WriteFile(path, []byte(doubling), 0o600); err != nil {
		t.Fatal(err)
	}
	doc, err := belay.ReadGraph(path)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := engines[0].Publish(ctx, doc)
	if err != nil {
		t.Fatal(err)
	}
	const runs = 20
	for n := range runs {
		if _, err := engines[n%2].Start(ctx, ref, input{n}, belay.StartOptions{ID: fmt.Sprintf("run-%d", n)}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range runs {
		done, err := engines[(n+1)%2].Await(ctx, fmt.Sprintf("run-%d", n))
		if err != nil || done.Status != run.Done {
			t.Fatalf("%+v, %v", done, err)
		}
		after, err := stores[0].Now(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if done.StartedAt.Before(before) || done.FinishedAt.After(after) || done.FinishedAt.Before(done.StartedAt) {
			t.Errorf("run-%d is from %v to %v, by the database it must lie within %v and %v", n, done.StartedAt, done.FinishedAt, before, after)
		}
	}
	if n := launches.Load(); n != runs {
		t.Errorf("%d runs were launched %d times", runs, n)
	}
	stop()
	for range engines {
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
