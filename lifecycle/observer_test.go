package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// diary keeps what an observer was told, a line each.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, "\n")
}

type marked struct{}

// trail is what hooks left in a context.
func trail(ctx context.Context) string { s, _ := ctx.Value(marked{}).(string); return s }

func (d *diary) observer() lifecycle.Observer {
	mark := func(ctx context.Context, name string) context.Context {
		ctx, cancel := context.WithCancel(context.WithValue(ctx, marked{}, trail(ctx)+name))
		cancel() // has no effect
		return ctx
	}
	return lifecycle.Observer{
		Starting: func(ctx context.Context, s lifecycle.ObservedStart) (context.Context, map[string]string) {
			d.note("starting %s", s.Graph.ID)
			return mark(ctx, "s"), map[string]string{"from": "observer", "own": "observer"}
		},
		Started: func(ctx context.Context, s lifecycle.ObservedStart) {
			d.note("[%s] started, existing %v, refused %v", trail(ctx), s.Existing, s.Err != nil)
		},
		Committed: func(ctx context.Context, c lifecycle.ObservedCommit) {
			d.note("[%s] committed %d %s %s driven %v", trail(ctx), c.Seq, c.Type, c.Status, c.Driven)
		},
		Grouped: func(_ context.Context, g lifecycle.ObservedGroup) { d.note("group of %d", g.Size) },
		Claimed: func(ctx context.Context, c lifecycle.ObservedClaim) context.Context {
			waited := time.Duration(-1)
			if !c.Due.IsZero() {
				waited = c.At.Sub(c.Due)
			}
			d.note("claimed %s attempt %d after %v, metadata %v", c.Class, c.Attempt, waited, c.Metadata)
			return mark(ctx, "c")
		},
		Ended: func(ctx context.Context, e lifecycle.ObservedEnd) {
			d.note("[%s] ended after %d commits, lost %q", trail(ctx), e.Commits, e.Lost)
		},
		FenceLost: func(ctx context.Context, f lifecycle.ObservedLoss) { d.note("[%s] lost at %s", trail(ctx), f.Stage) },
		Abandoned: func(ctx context.Context, a lifecycle.Abandon) {
			d.note("[%s] abandoned %s, %v", trail(ctx), a.Reasons[0].Code, a.Disposition)
		},
		Poisoned: func(_ context.Context, p lifecycle.ObservedPoison) { d.note("poisoned %s", p.Reason) },
		Attempting: func(ctx context.Context, a lifecycle.ObservedAttempt) context.Context {
			return mark(ctx, "a")
		},
		Attempted: func(ctx context.Context, a lifecycle.ObservedAttempt) {
			d.note("[%s] attempted %s %s %d: %v %s after %v", trail(ctx), a.Node, a.Use, a.Attempt, a.Outcome, a.Code, a.Took)
		},
	}
}

func (d *diary) want(t *testing.T, lines ...string) {
	t.Helper()
	if got, want := d.text(), strings.Join(lines, "\n"); got != want {
		t.Errorf("the observer was told\n%s\nwant\n%s", got, want)
	}
	d.mu.Lock()
	d.lines = nil
	d.mu.Unlock()
}

func TestObserversAreToldOfARunFromItsStartToItsEnd(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	var told diary
	attempts := 0
	e := newEngine(t, newMemory(clock), options{Clock: clock, Observers: []lifecycle.Observer{told.observer()}},
		act("work", func(ctx context.Context) error {
			clock.Advance(time.Second)
			if ctx.Err() != nil || trail(ctx) != "ca" {
				return node.Permanent(fmt.Errorf("the context of the node is %v, marked %s", context.Cause(ctx), trail(ctx)))
			}
			if attempts++; attempts == 1 {
				return errors.New("not yet")
			}
			return nil
		}))
	ref := publish(t, &e.Client, `
id: single
nodes: {work: {use: work, retry: {max_attempts: 2, backoff: {initial: 8s}}}}
edges: {in: {from: $start, to: work}}
`)
	r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{Key: "k", Metadata: map[string]string{"own": "caller"}})
	if r.Metadata["from"] != "observer" || r.Metadata["own"] != "caller" {
		t.Errorf("the metadata is %v", r.Metadata)
	}
	told.want(t, "starting single", "[s] started, existing false, refused false", "[s] committed 1 run_initialized running driven false")
	start(t, &e.Client, ref, nil, lifecycle.StartOptions{Key: "k"})
	told.want(t, "starting single", "[s] started, existing true, refused false")
	if _, err := e.Start(t.Context(), ref, map[string]int{"none": 1}, lifecycle.StartOptions{}); err == nil {
		t.Error("an input that does not fit was accepted")
	}
	told.want(t, "starting single", "[s] started, existing false, refused true")

	clock.Advance(3 * time.Second)
	next := drain(t, e).Next
	told.want(t, "claimed ready attempt 1 after 3s, metadata map[from:observer own:caller]",
		"[ca] attempted work work 1: retry node_error after 1s", "group of 1",
		"[c] committed 2 retry_scheduled running driven true", `[c] ended after 1 commits, lost ""`)
	clock.AdvanceTo(next.Add(time.Minute))
	drain(t, e)
	told.want(t, "claimed ready attempt 1 after 1m0s, metadata map[from:observer own:caller]",
		"[ca] attempted work work 2: completed  after 1s", "group of 1",
		"[c] committed 3 run_completed done driven true", `[c] ended after 1 commits, lost ""`)
	wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
}

func TestObserversAreToldOfAbandonsStealsAndPoisons(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	store := newMemory(clock)
	able := newEngine(t, store, options{Clock: clock}, act("work", func(context.Context) error { return nil }))
	r := start(t, &able.Client, publish(t, &able.Client, single), nil, lifecycle.StartOptions{})
	var told diary
	e := newEngine(t, store, options{Clock: clock, MaxAbandons: 1, MaxAttempts: 2, Observers: []lifecycle.Observer{told.observer()}})
	clock.AdvanceTo(drain(t, e).Next)
	drain(t, e)
	told.want(t, "claimed ready attempt 1 after 0s, metadata map[]",
		"[c] abandoned unknown_node_type, rescheduled", `[c] ended after 0 commits, lost ""`,
		"claimed ready attempt 1 after "+clock.Now().Sub(epoch).String()+", metadata map[]",
		"[c] abandoned unknown_node_type, poisoned", "poisoned max_claim_abandons_exceeded", `[c] ended after 0 commits, lost ""`)

	if _, err := e.RetryPoisoned(t.Context(), r.ID); err != nil {
		t.Fatal(err)
	}
	for range 2 { // crashes
		if b, err := store.ClaimDue(t.Context(), claim.Policy{TTL: time.Minute, Limit: 1, MaxAttempts: 2}); err != nil || len(b.Leases) != 1 {
			t.Fatalf("%v, %v", b, err)
		}
		clock.Advance(2 * time.Minute)
	}
	drain(t, e)
	told.want(t, "poisoned max_claim_attempts_exceeded")
}

func TestObserversAreToldWhereAClaimWasLost(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	store := newMemory(clock)
	var told diary
	var meanwhile func(id string)
	e := newEngine(t, store, options{Clock: clock, Observers: []lifecycle.Observer{told.observer()}}, node.Of("work", 1, func(ctx context.Context, _ none) (none, error) {
		call, _ := node.FromContext(ctx)
		meanwhile(call.Run)
		return none{}, nil
	}))
	elsewhere := newEngine(t, store, options{Clock: clock}, act("work", func(context.Context) error { return nil }))
	ref := publish(t, &e.Client, single)
	for _, tt := range []struct {
		stage     lifecycle.FenceStage
		meanwhile func(id string)
	}{
		{lifecycle.FenceSignal, func(id string) {
			if _, err := e.Cancel(t.Context(), id, ""); err != nil {
				t.Error(err)
			}
		}},
		{lifecycle.FenceCommit, func(id string) {
			if _, err := elsewhere.Cancel(t.Context(), id, ""); err != nil {
				t.Error(err)
			}
		}},
	} {
		meanwhile = tt.meanwhile
		start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		drain(t, e)
		lines := strings.Split(told.text(), "\n")
		want := fmt.Sprintf("[c] lost at %s", tt.stage)
		if n := len(lines); n < 2 || lines[n-2] != want || lines[n-1] != fmt.Sprintf("[c] ended after 0 commits, lost %q", tt.stage) {
			t.Errorf("the observer was told\n%s\nwant at its end %s", told.text(), want)
		}
	}
	if stages := lifecycle.FenceStages(); len(stages) != 5 || slices.Contains(stages, "") {
		t.Errorf("the stages are %q", stages)
	}
}

// An observer cannot veto, harm or hold up anything: it panics everywhere, returns no context, and
// adds metadata that no run may have.
func TestObserversCannotHarm(t *testing.T) {
	var log records
	bad := func() { panic("a hook of the host's") }
	e := newEngine(t, newMemory(nil), options{Logger: log.logger(), Observers: []lifecycle.Observer{
		{},
		{
			Starting: func(context.Context, lifecycle.ObservedStart) (context.Context, map[string]string) {
				return nil, map[string]string{"big": strings.Repeat("x", run.MaxMetadataValue+1)}
			},
			Claimed:    func(context.Context, lifecycle.ObservedClaim) context.Context { return nil },
			Attempting: func(context.Context, lifecycle.ObservedAttempt) context.Context { return nil },
		},
		{
			Starting: func(context.Context, lifecycle.ObservedStart) (context.Context, map[string]string) {
				panic("a hook of the host's")
			},
			Started:    func(context.Context, lifecycle.ObservedStart) { bad() },
			Committed:  func(context.Context, lifecycle.ObservedCommit) { bad() },
			Grouped:    func(context.Context, lifecycle.ObservedGroup) { bad() },
			Claimed:    func(context.Context, lifecycle.ObservedClaim) context.Context { panic("a hook of the host's") },
			Ended:      func(context.Context, lifecycle.ObservedEnd) { bad() },
			Attempting: func(context.Context, lifecycle.ObservedAttempt) context.Context { panic("a hook of the host's") },
			Attempted:  func(context.Context, lifecycle.ObservedAttempt) { bad() },
		},
	}}, act("work", func(ctx context.Context) error { return ctx.Err() }))
	r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{Metadata: map[string]string{"a": "b"}})
	drain(t, e)
	got := inspect(t, &e.Client, r.ID)
	wantStatus(t, got, run.Done)
	if len(got.Metadata) != 1 || got.Metadata["a"] != "b" {
		t.Errorf("the metadata is %v", got.Metadata)
	}
	for _, name := range []string{"Starting", "Started", "Committed", "Grouped", "Claimed", "Ended", "Attempting", "Attempted"} {
		if !strings.Contains(log.String(), "Observer."+name) {
			t.Errorf("the panic of %s is not logged", name)
		}
	}
	if !strings.Contains(log.String(), "does not fit") || strings.Contains(log.String(), "a hook of the host's") {
		t.Errorf("the log is\n%s", log.String())
	}
}

func TestMiddlewareOfAnEngineWrapsEveryAttempt(t *testing.T) {
	var seen []string
	watch := func(next node.Func) node.Func {
		return func(ctx context.Context, call *node.Call) (map[string]value.Value, error) {
			update, err := next(ctx, call)
			seen = append(seen, fmt.Sprint(call.Use, call.Version, call.Tenant, call.Metadata, node.Outcome(err)))
			return update, err
		}
	}
	e := newEngine(t, newMemory(nil), options{Middleware: []node.Middleware{watch}}, act("work", func(context.Context) error { return nil }))
	acme := e.For("acme")
	r := start(t, acme, publish(t, acme, single), nil, lifecycle.StartOptions{Metadata: map[string]string{"a": "b"}})
	drain(t, e)
	wantStatus(t, inspect(t, acme, r.ID), run.Done)
	if got := fmt.Sprint(seen); got != "[work1acmemap[a:b] completed]" {
		t.Errorf("middleware saw %s", got)
	}
	_, err := lifecycle.New(lifecycle.Config{Middleware: []node.Middleware{watch, nil}})
	if err == nil || !strings.Contains(err.Error(), "Middleware[1] is nil") {
		t.Errorf("a nil middleware: %v", err)
	}
}

// traceKey is where an observer puts a trace id, which a handler of log records looks for.
type traceKey struct{}

// tracing is a slog.Handler that notes under which trace each record about a run was made.
type tracing struct {
	slog.Handler
	mu    *sync.Mutex
	trace map[string][]any // by message
}

func (h tracing) Enabled(context.Context, slog.Level) bool { return true }

func (h tracing) Handle(ctx context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trace[r.Message] = append(h.trace[r.Message], ctx.Value(traceKey{}))
	return nil
}

func TestRecordsAboutARunCarryTheContextOfItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := tracing{slog.DiscardHandler, new(sync.Mutex), map[string][]any{}}
		refresh := errInjected
		store := &faulty{Store: newMemory(nil), fail: func(op string, _ bool) error {
			if op == "refresh" {
				return refresh
			}
			return nil
		}}
		launches := 0
		e := newEngine(t, store, options{
			Logger: slog.New(log), NodeGrace: time.Second,
			Observe: func(*run.Document, []run.Event) { panic("a hook") },
			Observers: []lifecycle.Observer{{Claimed: func(ctx context.Context, c lifecycle.ObservedClaim) context.Context {
				return context.WithValue(ctx, traceKey{}, c.Run)
			}, Ended: func(context.Context, lifecycle.ObservedEnd) { panic("an observer") }}},
		}, act("work", func(ctx context.Context) error {
			switch launches++; launches {
			case 1: // it is given up, and left behind
				<-ctx.Done()
				time.Sleep(time.Hour)
			case 2:
				return errors.New("no luck")
			}
			return nil
		}))
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		log.mu.Lock()
		clear(log.trace) // of the start, which has no claim
		log.mu.Unlock()
		drain(t, e)
		refresh = nil
		time.Sleep(time.Until(inspect(t, &e.Client, r.ID).Wake))
		drain(t, e)
		time.Sleep(2 * time.Hour)
		wantStatus(t, inspect(t, &e.Client, r.ID), run.Failed)
		log.mu.Lock()
		defer log.mu.Unlock()
		for _, message := range []string{
			"belay: a claim could not be refreshed in time, its run is given up here", "belay: stopped driving a run",
			"belay: a node ignores the end of its context, its goroutine is left behind",
			"belay: a node returned after its attempt had ended, what it returned is dropped",
			"belay: committed", "belay: a run failed, its events and its failure say why", "belay: a hook panicked",
		} {
			traces := log.trace[message]
			if len(traces) == 0 || slices.ContainsFunc(traces, func(trace any) bool { return trace != r.ID }) {
				t.Errorf("%q was told under the traces %v, want %s", message, traces, r.ID)
			}
		}
	})
}
