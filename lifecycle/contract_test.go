package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// The contract of a node type as three releases have it: version 2 has its limit in cents,
// version 3 has it as a text, and says how the one becomes the other.
type (
	configV2 struct {
		Cents int `json:"cents"`
	}
	configV3 struct {
		Limit string `json:"limit"`
	}
)

const charged = `
id: order
nodes: {charge: {use: charge, config: {cents: 250}}}
edges: {in: {from: $start, to: charge}, out: {from: charge, to: $finish}}
`

// record is what was said, by several goroutines.
type record[T any] struct {
	mu   sync.Mutex
	said []T
}

func (r *record[T]) add(v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, v)
}

func (r *record[T]) all() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.said)
}

func chargeV2(ran *record[string]) node.Type {
	return node.Configured("charge", 2, func(_ context.Context, c configV2, _ none) (none, error) {
		ran.add(fmt.Sprintf("2 with %d cents", c.Cents))
		return none{}, nil
	})
}

func chargeV3(ran *record[string], opts ...node.Option) node.Type {
	return node.Configured("charge", 3, func(_ context.Context, c configV3, _ none) (none, error) {
		ran.add("3 with " + c.Limit)
		return none{}, nil
	}, opts...)
}

func acceptsV2(config value.Value) (value.Value, error) {
	var old configV2
	if err := json.Unmarshal(config, &old); err != nil {
		return nil, err
	}
	return value.Of(configV3{Limit: fmt.Sprintf("%d.%02d", old.Cents/100, old.Cents%100)})
}

// A published graph pins the contract version: a release with a newer one runs it with the
// upgraded config if it accepts the older, and hands it back unharmed if not.
func TestAReleaseRunsWhatItAcceptsAndHandsBackTheRest(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	store := newMemory(clock)
	var ran record[string]
	second := newEngine(t, store, options{Clock: clock}, chargeV2(&ran))
	ref := publish(t, &second.Client, charged)
	for _, id := range []string{"a", "b"} {
		start(t, &second.Client, ref, nil, lifecycle.StartOptions{ID: id})
	}

	var told record[lifecycle.Abandon]
	strict := newEngine(t, store, options{Clock: clock, Observers: whenAbandoned(told.add)}, chargeV3(&ran))
	if d := drain(t, strict); d.Abandons != 2 || d.Commits != 0 || len(ran.all()) != 0 {
		t.Fatalf("a release that does not accept version 2: %+v, ran %v", d, ran.all())
	}
	for _, a := range told.all() {
		if len(a.Reasons) != 1 || a.Reasons[0].Code != node.CodeUnsupportedVersion || a.Disposition != claim.Rescheduled {
			t.Errorf("told %+v", a)
		}
	}
	for _, id := range []string{"a", "b"} {
		if r := inspect(t, &second.Client, id); r.Attempts != 0 || r.Abandons != 1 || r.Seq != 1 || r.Status != run.Running {
			t.Errorf("%s: attempts %d, abandons %d, seq %d, %s", id, r.Attempts, r.Abandons, r.Seq, r.Status)
		}
	}

	clock.Advance(time.Minute)
	third := newEngine(t, store, options{Clock: clock}, chargeV3(&ran, node.Accepts(2, acceptsV2)))
	if d := drain(t, third); d.Abandons != 0 || d.Commits != 2 {
		t.Errorf("a release that accepts version 2: %+v", d)
	}
	if !slices.Equal(ran.all(), []string{"3 with 2.50", "3 with 2.50"}) {
		t.Errorf("ran %v", ran.all())
	}
	for _, id := range []string{"a", "b"} {
		r := inspect(t, &second.Client, id)
		wantStatus(t, r, run.Done)
		if r.Abandons != 0 || r.Graph != ref {
			t.Errorf("%s: abandons %d, graph %v", id, r.Abandons, r.Graph)
		}
	}
}

// Back again: what the newer release has published is foreign to the older one.
func TestAnOlderReleaseHandsBackWhatANewerOnePublished(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	store := newMemory(clock)
	var ran record[string]
	third := newEngine(t, store, options{Clock: clock}, chargeV3(&ran, node.Accepts(2, acceptsV2)))
	r := start(t, &third.Client, publish(t, &third.Client, `
id: order
nodes: {charge: {use: charge, config: {limit: "2.50"}}}
edges: {in: {from: $start, to: charge}, out: {from: charge, to: $finish}}
`), nil, lifecycle.StartOptions{})
	second := newEngine(t, store, options{Clock: clock}, chargeV2(&ran))
	if d := drain(t, second); d.Abandons != 1 || len(ran.all()) != 0 {
		t.Errorf("%+v, ran %v", d, ran.all())
	}
	clock.Advance(time.Minute)
	drain(t, third)
	got := inspect(t, &third.Client, r.ID)
	wantStatus(t, got, run.Done)
	if got.Attempts != 0 || !slices.Equal(ran.all(), []string{"3 with 2.50"}) {
		t.Errorf("attempts %d, ran %v", got.Attempts, ran.all())
	}
}

// An upgrade that fails means that this binary cannot run the graph: nothing is executed.
func TestAnUpgradeThatFailsHandsTheRunBack(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	store := newMemory(clock)
	var ran record[string]
	second := newEngine(t, store, options{Clock: clock}, chargeV2(&ran))
	r := start(t, &second.Client, publish(t, &second.Client, charged), nil, lifecycle.StartOptions{})
	broken := newEngine(t, store, options{Clock: clock}, chargeV3(&ran, node.Accepts(2, func(value.Value) (value.Value, error) {
		return nil, errors.New("no limit of before can be kept")
	})))
	d := drain(t, broken)
	got := inspect(t, &second.Client, r.ID)
	if d.Abandons != 1 || got.Attempts != 0 || got.Abandons != 1 || len(ran.all()) != 0 {
		t.Errorf("%+v, attempts %d, abandons %d, ran %v", d, got.Attempts, got.Abandons, ran.all())
	}
}

// H7: a canary that claims only the graphs it knows leaves even the counters of others alone.
func TestH7ACanaryThatClaimsOnlyItsGraphsAbandonsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(nil)
		var ran record[string]
		second := newEngine(t, store, options{}, chargeV2(&ran))
		foreign := start(t, &second.Client, publish(t, &second.Client, charged), nil, lifecycle.StartOptions{})
		canary := newEngine(t, store, options{Graphs: []claim.GraphFilter{{ID: "preview"}}}, chargeV3(&ran))
		serve(t, canary)
		own := start(t, &canary.Client, publish(t, &canary.Client, `
id: preview
nodes: {charge: {use: charge, config: {limit: "1.00"}}}
edges: {in: {from: $start, to: charge}, out: {from: charge, to: $finish}}
`), nil, lifecycle.StartOptions{})
		if _, err := canary.Await(t.Context(), own.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		got := inspect(t, &second.Client, foreign.ID)
		if got.Abandons != 0 || got.Attempts != 0 || got.Seq != 1 || !got.Wake.Equal(foreign.Wake) {
			t.Errorf("the canary touched a foreign run: attempts %d, abandons %d, due %v", got.Attempts, got.Abandons, got.Wake)
		}
		serve(t, second)
		if r, err := second.Await(t.Context(), foreign.ID); err != nil || r.Status != run.Done {
			t.Fatal(err)
		}
		if !slices.Equal(ran.all(), []string{"3 with 1.00", "2 with 250 cents"}) {
			t.Errorf("ran %v", ran.all())
		}
	})
}

// A writer that is pinned to an older format runs what that format can say, and hands back the
// rest before it executes anything.
func TestAPinnedEngineHandsBackWhatItsFormatCannotSay(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	file := filepath.Join(t.TempDir(), "runs.db")
	open := func(format int) *sqlite.Store {
		store, err := sqlite.Open(t.Context(), file, sqlite.Options{SharedDirectory: true, Now: clock.Now, WriteFormat: format})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return store
	}
	launched := 0
	types := []node.Type{
		act("work", func(context.Context) error { launched++; return nil }),
		act("tell", func(context.Context) error { return nil }),
	}
	var told record[lifecycle.Abandon]
	pinned := newEngine(t, open(1), options{Clock: clock, Observers: whenAbandoned(told.add)}, types...)
	free := newEngine(t, open(0), options{Clock: clock}, types...)
	from, to := publish(t, &pinned.Client, before), publish(t, &pinned.Client, after)
	plain := start(t, &pinned.Client, from, nil, lifecycle.StartOptions{ID: "plain"})
	moved := start(t, &pinned.Client, from, nil, lifecycle.StartOptions{ID: "moved"})

	migration := lifecycle.MigrateOptions{Mapping: renames}
	_, err := pinned.Migrate(t.Context(), moved.ID, to, migration)
	var refused *run.WriteFormatError
	if !errors.As(err, &refused) || backend.Classify(err) != backend.Permanent || refused.Needs != 2 {
		t.Fatalf("a migration by a pinned writer: %v", err)
	}
	if got := inspect(t, &free.Client, moved.ID); got.Seq != 1 || got.Graph != from {
		t.Fatalf("a refused migration changed the run: %+v", got)
	}
	if _, err := free.Migrate(t.Context(), moved.ID, to, migration); err != nil {
		t.Fatal(err)
	}
	drain(t, pinned)
	wantStatus(t, inspect(t, &free.Client, plain.ID), run.Done)
	got := inspect(t, &pinned.Client, moved.ID) // it can be looked at all the same
	if launched != 1 || got.Abandons != 1 || got.Attempts != 0 || got.Status != run.Running {
		t.Errorf("launched %d times, abandons %d, attempts %d, %s", launched, got.Abandons, got.Attempts, got.Status)
	}
	if told := told.all(); len(told) != 1 || told[0].Reasons[0].Code != lifecycle.CodeNewerDocument {
		t.Errorf("told %+v", told)
	}
	clock.Advance(time.Minute)
	drain(t, free)
	wantStatus(t, inspect(t, &free.Client, moved.ID), run.Done)
	if launched != 2 {
		t.Errorf("launched %d times", launched)
	}
}
