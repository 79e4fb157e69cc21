package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// The two versions of a graph: one node is renamed, one is new.
const (
	before = `
id: order
nodes: {charge: {use: work, retry: {max_attempts: 3}}}
edges: {in: {from: $start, to: charge}, out: {from: charge, to: $finish}}
`
	after = `
id: order
nodes:
  bill: {use: work, retry: {max_attempts: 3}}
  tell: {use: tell}
edges: {in: {from: $start, to: bill}, then: {from: bill, to: tell}, out: {from: tell, to: $finish}}
`
)

var renames = run.Mapping{Nodes: map[string]string{"charge": "bill"}}

func TestAMigratedRunGoesOnWhereItStoodWithItsKeys(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	var keys []string
	told := 0
	fails := true
	e := newEngine(t, newMemory(clock), options{Clock: clock},
		act("work", func(ctx context.Context) error {
			keys = append(keys, node.IdempotencyKey(ctx))
			if fails {
				return errors.New("not yet")
			}
			return nil
		}),
		act("tell", func(context.Context) error { told++; return nil }))
	from, to := publish(t, &e.Client, before), publish(t, &e.Client, after)
	r := start(t, &e.Client, from, nil, lifecycle.StartOptions{ID: "r"})
	d := drain(t, e)
	parked := inspect(t, &e.Client, r.ID)

	dry, err := e.Migrate(t.Context(), r.ID, to, lifecycle.MigrateOptions{Mapping: renames, DryRun: true})
	if err != nil || dry.Graph != to || dry.Seq != parked.Seq+1 {
		t.Fatalf("a dry run answers %+v, %v", dry, err)
	}
	if now := inspect(t, &e.Client, r.ID); now.Seq != parked.Seq || now.Graph != from {
		t.Fatalf("a dry run changed the run: %+v", now)
	}
	m, err := e.Migrate(t.Context(), r.ID, to, lifecycle.MigrateOptions{Mapping: renames})
	if err != nil || m.Graph != to || len(m.Lineage) != 1 || m.Lineage[0].Hash != from.Hash || !m.Wake.Equal(d.Next) {
		t.Fatalf("migrated: %+v, %v", m, err)
	}
	again, err := e.Migrate(t.Context(), r.ID, to, lifecycle.MigrateOptions{})
	if err != nil || again.Seq != m.Seq {
		t.Fatalf("migrated again: %+v, %v", again, err)
	}
	fails = false
	clock.AdvanceTo(d.Next)
	drain(t, e)
	got := inspect(t, &e.Client, r.ID)
	wantStatus(t, got, run.Done)
	if !slices.Equal(keys, []string{"r:1:charge", "r:1:charge"}) || told != 1 || got.Attempts != 0 || got.Abandons != 0 {
		t.Errorf("keys %v, told %d times, attempts %d, abandons %d", keys, told, got.Attempts, got.Abandons)
	}
}

func TestAMigrationSaysEveryReasonAndTouchesNothing(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	e := newEngine(t, newMemory(clock), options{Clock: clock},
		act("work", func(context.Context) error { return nil }), act("tell", func(context.Context) error { return nil }))
	from, to := publish(t, &e.Client, before), publish(t, &e.Client, after)
	r := start(t, &e.Client, from, nil, lifecycle.StartOptions{ID: "r"})
	_, err := e.Migrate(t.Context(), r.ID, to, lifecycle.MigrateOptions{Mapping: run.Mapping{Edges: map[string]string{"in": "nowhere"}}})
	var refused *run.MigrationError
	if !errors.As(err, &refused) || len(refused.Problems) != 3 {
		t.Fatalf("want an unknown edge, an edge and a node without counterpart: %v", err)
	}
	if now := inspect(t, &e.Client, r.ID); now.Seq != 1 || now.Graph != from {
		t.Errorf("a refused migration changed the run: %+v", now)
	}
	for name, call := range map[string]func() error{
		"no such run": func() error {
			_, err := e.Migrate(t.Context(), "nobody", to, lifecycle.MigrateOptions{})
			return err
		},
		"no such version": func() error {
			_, err := e.Migrate(t.Context(), r.ID, graph.Ref{ID: "order", Hash: "beef"}, lifecycle.MigrateOptions{})
			return err
		},
		"another tenant": func() error {
			_, err := e.For("acme").Migrate(t.Context(), r.ID, to, lifecycle.MigrateOptions{Mapping: renames})
			return err
		},
	} {
		if err := call(); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	drain(t, e)
	if _, err := e.Migrate(t.Context(), r.ID, to, lifecycle.MigrateOptions{Mapping: renames}); !errors.Is(err, run.ErrInactiveRun) {
		t.Errorf("a finished run: %v", err)
	}
}

func TestAMigrationStartsNoRunEarly(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	e := newEngine(t, newMemory(clock), options{Clock: clock},
		act("work", func(context.Context) error { return nil }), act("tell", func(context.Context) error { return nil }))
	from, to := publish(t, &e.Client, before), publish(t, &e.Client, after)
	at := epoch.Add(24 * time.Hour)
	r := start(t, &e.Client, from, nil, lifecycle.StartOptions{At: at})
	for _, version := range []struct {
		to      graph.Ref
		mapping run.Mapping
	}{{to, renames}, {from, run.Mapping{Nodes: map[string]string{"bill": "charge"}}}} {
		m, err := e.Migrate(t.Context(), r.ID, version.to, lifecycle.MigrateOptions{Mapping: version.mapping})
		if err != nil || !m.Wake.Equal(at) {
			t.Fatalf("due at %v, %v: want %v", m, err, at)
		}
	}
	if d := drain(t, e); d.Claims != 0 {
		t.Errorf("claimed before its time: %+v", d)
	}
}

// A superstep in flight is lost to the migration, and planned again under the same key.
func TestAMigrationRevokesTheClaimOfASuperstepInFlight(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	var e *lifecycle.Engine
	var to graph.Ref
	var keys []string
	e = newEngine(t, newMemory(clock), options{Clock: clock},
		act("work", func(ctx context.Context) error {
			keys = append(keys, node.IdempotencyKey(ctx))
			if len(keys) > 1 {
				return nil
			}
			if _, err := e.Migrate(context.WithoutCancel(ctx), "r", to, lifecycle.MigrateOptions{Mapping: renames}); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}),
		act("tell", func(context.Context) error { return nil }))
	from := publish(t, &e.Client, before)
	to = publish(t, &e.Client, after)
	start(t, &e.Client, from, nil, lifecycle.StartOptions{ID: "r"})
	drain(t, e)
	got := inspect(t, &e.Client, "r")
	wantStatus(t, got, run.Done)
	if !slices.Equal(keys, []string{"r:1:charge", "r:1:charge"}) || got.Graph != to {
		t.Errorf("keys %v, graph %v", keys, got.Graph)
	}
}
