package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

const greeting = `
id: greeting
inputs: {name: {schema: {type: string}, required: true}}
fields: {answer: {schema: {type: string}}}
nodes: {ask: {use: ask}}
edges: {a: {from: $start, to: ask}}
`

func TestStartStoresWhatItWasGiven(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	e := newEngine(t, newMemory(clock), options{Clock: clock}, ask)
	ref := publish(t, &e.Client, greeting)
	at := epoch.Add(time.Hour)
	r := start(t, &e.Client, ref, map[string]string{"name": "Ada"}, lifecycle.StartOptions{
		ID: "given", At: at, Metadata: map[string]string{"trace": "abc"},
	})
	got := inspect(t, &e.Client, "given")
	if got.Graph != ref || !got.Wake.Equal(at) || !r.Wake.Equal(at) || got.Metadata["trace"] != "abc" || string(got.Value("name")) != `"Ada"` || r.Existing {
		t.Errorf("stored %+v", got)
	}
	if d := drain(t, e); d.Claims != 0 {
		t.Errorf("claimed before its time: %+v", d)
	}
	clock.AdvanceTo(at)
	if d := drain(t, e); d.Claims != 1 {
		t.Errorf("not claimed at its time: %+v", d)
	}
}

func TestStartTakesAnythingThatEncodesToTheInputs(t *testing.T) {
	e := newEngine(t, newMemory(nil), options{}, ask)
	ref := publish(t, &e.Client, greeting)
	type input struct {
		Name string `json:"name"`
	}
	for _, in := range []any{input{"Ada"}, &input{"Ada"}, map[string]any{"name": "Ada"}, []byte(nil)} {
		_, err := e.Start(t.Context(), ref, in, lifecycle.StartOptions{})
		if _, isBytes := in.([]byte); isBytes {
			if !errors.Is(err, run.ErrInvalidInput) {
				t.Errorf("%T: %v", in, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%T: %v", in, err)
		}
	}
}

func TestStartRefusesAnInputThatDoesNotFit(t *testing.T) {
	e := newEngine(t, newMemory(nil), options{}, ask)
	ref := publish(t, &e.Client, greeting)
	for _, tt := range []struct {
		name  string
		input any
		says  string
	}{
		{"none", nil, "/name"},
		{"an empty map", map[string]any{}, "/name"},
		{"a list", []string{"Ada"}, "object"},
		{"the wrong type", map[string]any{"name": 7}, "/name"},
		{"an unknown name", map[string]any{"name": "Ada", "nmae": "x"}, "/nmae"},
		{"a function", func() {}, "func"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := e.Start(t.Context(), ref, tt.input, lifecycle.StartOptions{})
			if !errors.Is(err, run.ErrInvalidInput) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want an invalid input that says %q", err, tt.says)
			}
		})
	}
	if page, _ := e.List(t.Context(), backend.Query{Limit: 1}); len(page.Runs) != 0 {
		t.Error("a refused start stored a run")
	}
}

func TestStartWithoutAHashTakesTheLatestVersion(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	e := newEngine(t, newMemory(clock), options{Clock: clock}, ask)
	publish(t, &e.Client, question)
	clock.Advance(time.Second)
	second := publish(t, &e.Client, strings.Replace(question, "outputs: {answer", "outputs: {said", 1))
	r := start(t, &e.Client, graph.Ref{ID: "question"}, nil, lifecycle.StartOptions{})
	if r.Graph != second {
		t.Errorf("started %v, want the latest, %v", r.Graph, second)
	}
	if _, err := e.Start(t.Context(), graph.Ref{ID: "unheard"}, nil, lifecycle.StartOptions{}); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("an unpublished graph: %v", err)
	}
}

func TestStartKeyAnswersTheFirstRunWhileItIsHeld(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	e := newEngine(t, newMemory(clock), options{Clock: clock}, ask)
	ref := publish(t, &e.Client, question)
	opts := lifecycle.StartOptions{Key: "order-42", Window: time.Hour}
	first := start(t, &e.Client, ref, nil, opts)
	again := func(existing bool, why string) *lifecycle.Run {
		t.Helper()
		r := start(t, &e.Client, ref, nil, opts)
		if r.Existing != existing || existing && r.ID != first.ID {
			t.Errorf("%s: run %s, existing %v", why, r.ID, r.Existing)
		}
		return r
	}
	again(true, "running")
	if _, err := e.Cancel(t.Context(), first.ID, ""); err != nil {
		t.Fatal(err)
	}
	if got := again(true, "finished within the window"); got.Status != run.Cancelled {
		t.Errorf("the first run is told as %s", got.Status)
	}
	clock.Advance(time.Hour + time.Microsecond)
	again(false, "finished, and the window passed")
}

func TestStartWithATakenIDIsAConflict(t *testing.T) {
	e := newEngine(t, newMemory(nil), options{}, ask)
	ref := publish(t, &e.Client, question)
	start(t, &e.Client, ref, nil, lifecycle.StartOptions{ID: "taken"})
	if _, err := e.Start(t.Context(), ref, nil, lifecycle.StartOptions{ID: "taken"}); !errors.Is(err, backend.ErrConflict) {
		t.Errorf("%v", err)
	}
	acme := e.For("acme")
	publish(t, acme, question)
	if _, err := acme.Start(t.Context(), ref, nil, lifecycle.StartOptions{ID: "taken"}); !errors.Is(err, backend.ErrConflict) {
		t.Errorf("another owner's: %v", err)
	}
}

func TestTenantsSeeNothingOfEachOther(t *testing.T) {
	e := newEngine(t, newMemory(nil), options{}, ask)
	acme, other := e.For("acme"), e.For("other")
	ref := publish(t, acme, question)
	r := start(t, acme, ref, nil, lifecycle.StartOptions{})
	if _, err := other.Start(t.Context(), ref, nil, lifecycle.StartOptions{}); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("another's graph: %v", err)
	}
	drain(t, e)
	for _, stranger := range []*lifecycle.Client{other, &e.Client} {
		ctx := t.Context()
		_, fetch := stranger.Fetch(ctx, r.ID)
		_, insp := stranger.Inspect(ctx, r.ID)
		_, events := stranger.Events(ctx, r.ID, backend.EventQuery{Limit: 10})
		_, await := stranger.Await(ctx, r.ID)
		_, resolve := stranger.Resolve(ctx, r.ID, "q", "x")
		_, cancel := stranger.Cancel(ctx, r.ID, "")
		_, retry := stranger.RetryPoisoned(ctx, r.ID)
		for what, err := range map[string]error{"fetch": fetch, "inspect": insp, "events": events, "await": await, "resolve": resolve, "cancel": cancel, "retry": retry} {
			if !errors.Is(err, backend.ErrNotFound) || strings.Contains(err.Error(), "acme") {
				t.Errorf("%s of another's run: %v", what, err)
			}
		}
		if page, err := stranger.List(ctx, backend.Query{Limit: 10}); err != nil || len(page.Runs) != 0 {
			t.Errorf("list: %v, %v", page, err)
		}
	}
	if got := inspect(t, acme, r.ID); got.Status != run.Waiting || got.Owner != backend.Tenant("acme") {
		t.Errorf("%s, owner %v", got.Status, got.Owner)
	}
}

func TestPublishIsIdempotentAndListsEveryProblem(t *testing.T) {
	e := newEngine(t, newMemory(nil), options{}, ask)
	if first, again := publish(t, &e.Client, question), publish(t, &e.Client, question); first != again {
		t.Errorf("published twice as %v and %v", first, again)
	}
	doc := parse(t, question)
	doc.Nodes["lost"] = graph.Node{Use: "no such type"}
	doc.Edges["bad"] = graph.Edge{From: graph.Sources{"ask"}, To: "nowhere"}
	_, err := e.Publish(t.Context(), doc)
	var found graph.Diagnostics
	if !errors.As(err, &found) || len(found.Errors()) < 2 {
		t.Errorf("%v", err)
	}
}

func TestGraphsAreCompiledOnce(t *testing.T) {
	fetched := 0
	store := &faulty{Store: newMemory(nil), fail: func(op string, after bool) error {
		if op == "graph" && !after {
			fetched++
		}
		return nil
	}}
	e := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
	ref := publish(t, &e.Client, single)
	for range 50 {
		start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
	}
	drain(t, e)
	if fetched != 1 {
		t.Errorf("the graph was fetched %d times", fetched)
	}
}

// numbered makes ids that a test can know.
type numbered struct{ runs, commits atomic.Int64 }

func (n *numbered) RunID() string        { return fmt.Sprint("run-", n.runs.Add(1)) }
func (n *numbered) CheckpointID() string { return fmt.Sprint("commit-", n.commits.Add(1)) }

func TestIDsComeFromTheConfiguration(t *testing.T) {
	ids := &numbered{}
	store := newMemory(nil)
	e := newEngine(t, store, options{IDs: ids}, act("work", func(context.Context) error { return nil }))
	r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
	drain(t, e)
	info, err := store.InspectRun(t.Context(), backend.System(), r.ID)
	if err != nil || r.ID != "run-1" || info.CheckpointID != "commit-2" {
		t.Errorf("run %s, last commit %s, %v", r.ID, info.CheckpointID, err)
	}
}
