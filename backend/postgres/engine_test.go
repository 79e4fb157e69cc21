package postgres_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
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
