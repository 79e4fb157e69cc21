package otel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/lifecycle/otel"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

const order = `
id: order
inputs: {card: {schema: {type: string}, required: true}}
fields: {receipt: {schema: {type: string}}}
nodes: {charge: {use: pay, retry: {max_attempts: 2, backoff: {initial: 2s}}}}
edges: {in: {from: $start, to: charge}}
outputs: {receipt: {from: receipt}}
`

type (
	card struct {
		Card string `json:"card"`
	}
	receipt struct {
		Receipt string `json:"receipt"`
	}
)

// bench is a store and a clock that engines share, as processes share a database.
type bench struct {
	clock *lifecycle.VirtualClock
	store *memory.Store
}

func newBench() *bench {
	clock := lifecycle.NewVirtualClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	return &bench{clock: clock, store: memory.New(memory.Options{Now: clock.Now})}
}

// process is an engine with a recorder of its own.
func (b *bench) process(t *testing.T, opts otel.Options, types ...node.Type) (*lifecycle.Engine, *recorder) {
	t.Helper()
	r := &recorder{}
	opts.TracerProvider, opts.MeterProvider = r, r
	observer, err := otel.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	e, err := lifecycle.New(lifecycle.Config{
		Backend: b.store, Clock: b.clock, Nodes: node.NewRegistry().Add(types...),
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Observers: []lifecycle.Observer{observer}, MaxAbandons: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return e, r
}

func (b *bench) start(t *testing.T, e *lifecycle.Engine, opts lifecycle.StartOptions) *lifecycle.Run {
	t.Helper()
	doc, err := graph.ParseYAML([]byte(order))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := e.Publish(t.Context(), doc)
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Start(t.Context(), ref, card{"4242-secret"}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (b *bench) drain(t *testing.T, e *lifecycle.Engine) lifecycle.Drained {
	t.Helper()
	d, err := e.Drain(t.Context(), lifecycle.DrainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// flaky charges at the second attempt.
func flaky(spans *[]trace.SpanContext) node.Type {
	return node.Of("pay", 1, func(ctx context.Context, in card) (receipt, error) {
		*spans = append(*spans, trace.SpanContextFromContext(ctx))
		if call, _ := node.FromContext(ctx); call.Attempt == 1 {
			return receipt{}, errors.New("no answer for " + in.Card)
		}
		return receipt{in.Card}, nil
	})
}

// H33: one process starts, another tries and falls, a third one finishes: one trace.
func TestH33ARunIsOneTraceThroughEveryProcess(t *testing.T) {
	b := newBench()
	var inNodes []trace.SpanContext
	starter, first := b.process(t, otel.Options{}, flaky(&inNodes))
	r := b.start(t, starter, lifecycle.StartOptions{})
	doomed, second := b.process(t, otel.Options{}, flaky(&inNodes))
	b.clock.AdvanceTo(b.drain(t, doomed).Next)
	if _, err := b.store.ClaimDue(t.Context(), claim.Policy{TTL: time.Minute, Limit: 1, MaxAttempts: 5}); err != nil {
		t.Fatal(err) // the second process claims once more, and falls
	}
	b.clock.Advance(2 * time.Minute)
	heir, third := b.process(t, otel.Options{}, flaky(&inNodes))
	b.drain(t, heir)
	got, err := heir.Inspect(t.Context(), r.ID)
	if err != nil || got.Status != run.Done {
		t.Fatalf("%+v, %v", got, err)
	}

	starts := first.named("start order")
	if len(starts) != 1 || len(first.named("commit order")) != 1 {
		t.Fatalf("the first process ended %d starts", len(starts))
	}
	origin := starts[0].own
	for i, process := range []*recorder{second, third} {
		claims := process.named("claim order")
		if len(claims) != 1 || claims[0].parent.SpanID() != origin.SpanID() || !claims[0].parent.IsRemote() {
			t.Fatalf("process %d ended %d claims, below %v", i+2, len(claims), claims[0].parent)
		}
		for _, below := range []string{"attempt pay", "commit order", "drive order"} {
			spans := process.named(below)
			if len(spans) != 1 || spans[0].parent.SpanID() != claims[0].own.SpanID() || spans[0].own.TraceID() != origin.TraceID() {
				t.Errorf("process %d: %s is not once below the claim, in the trace of the start", i+2, below)
			}
			if id := spans[0].attrs["belay.run.id"]; id.AsString() != r.ID {
				t.Errorf("%s names the run %s", below, id.AsString())
			}
		}
		if attempt := process.named("attempt pay")[0]; inNodes[i].SpanID() != attempt.own.SpanID() {
			t.Errorf("the node of process %d works in another span than its attempt's", i+2)
		}
	}
	if kind := third.named("claim order")[0].attrs["belay.claim.kind"]; kind.AsString() != "stolen" {
		t.Errorf("the third process's claim is %s", kind.AsString())
	}
	if s := second.named("attempt pay")[0]; s.status != codes.Error || s.attrs["error.type"].AsString() != run.CodeError {
		t.Errorf("the failed attempt has status %v, %v", s.status, s.attrs)
	}
	for _, process := range []*recorder{first, second, third} {
		for _, s := range process.ended {
			if text := fmt.Sprint(s.name, s.attrs); strings.Contains(text, "secret") {
				t.Errorf("a span shows a payload: %s", text)
			}
		}
	}
}

func TestSeparateTracesAreLinkedToTheStart(t *testing.T) {
	b := newBench()
	var inNodes []trace.SpanContext
	e, spans := b.process(t, otel.Options{SeparateTraces: true}, flaky(&inNodes))
	b.start(t, e, lifecycle.StartOptions{})
	b.clock.AdvanceTo(b.drain(t, e).Next)
	b.drain(t, e)
	origin := spans.named("start order")[0].own
	claims := spans.named("claim order")
	if len(claims) != 2 {
		t.Fatalf("%d claims", len(claims))
	}
	for _, c := range claims {
		if c.own.TraceID() == origin.TraceID() || len(c.links) != 1 || c.links[0].SpanContext.SpanID() != origin.SpanID() {
			t.Errorf("a claim is not linked to the start: %+v", c)
		}
	}
}

func TestACallerDecidesTheTraceAndSignalsAreLinkedToIt(t *testing.T) {
	b := newBench()
	e, spans := b.process(t, otel.Options{}, flaky(&[]trace.SpanContext{}))
	const given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r := b.start(t, e, lifecycle.StartOptions{Metadata: map[string]string{"traceparent": given}})
	if r.Metadata["traceparent"] != given {
		t.Errorf("the caller's trace was replaced: %v", r.Metadata)
	}
	if _, err := e.Cancel(t.Context(), r.ID, ""); err != nil {
		t.Fatal(err)
	}
	commits := spans.named("commit order")
	last := commits[len(commits)-1]
	if len(last.links) != 1 || last.links[0].SpanContext.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("the cancel is linked to %+v", last.links)
	}
}

func TestMetricsCountWhatHappened(t *testing.T) {
	b := newBench()
	var inNodes []trace.SpanContext
	e, r := b.process(t, otel.Options{}, flaky(&inNodes))
	b.start(t, e, lifecycle.StartOptions{Key: "k"})
	b.start(t, e, lifecycle.StartOptions{Key: "k"})
	b.clock.Advance(time.Second)
	b.clock.AdvanceTo(b.drain(t, e).Next)
	b.drain(t, e)
	want := []string{
		"belay.claim.active belay.graph.id=order = 0",
		"belay.claims belay.claim.kind=ready,belay.graph.id=order = 2",
		"belay.commit.group.size  = 2",
		"belay.commits belay.checkpoint.type=retry_scheduled,belay.graph.id=order = 1",
		"belay.commits belay.checkpoint.type=run_completed,belay.graph.id=order = 1",
		"belay.commits belay.checkpoint.type=run_initialized,belay.graph.id=order = 1",
		"belay.queue.age belay.graph.id=order = 1",
		"belay.starts belay.graph.id=order,belay.start.outcome=existing = 1",
		"belay.starts belay.graph.id=order,belay.start.outcome=stored = 1",
	}
	r.wants(t, want)

	// A node type is gone, and a process falls again and again.
	id := b.start(t, e, lifecycle.StartOptions{}).ID
	unable, r := b.process(t, otel.Options{})
	b.clock.AdvanceTo(b.drain(t, unable).Next)
	b.drain(t, unable)
	r.wants(t, []string{
		"belay.abandons belay.abandon.disposition=poisoned,belay.abandon.reason=unknown_node_type,belay.graph.id=order = 1",
		"belay.abandons belay.abandon.disposition=rescheduled,belay.abandon.reason=unknown_node_type,belay.graph.id=order = 1",
		"belay.poisons belay.graph.id=order,belay.poison.reason=max_claim_abandons_exceeded = 1",
	})
	if _, err := e.RetryPoisoned(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	revoked, r := b.process(t, otel.Options{}, node.Of("pay", 1, func(context.Context, card) (receipt, error) {
		_, err := e.Cancel(t.Context(), id, "")
		return receipt{"late"}, err
	}))
	b.drain(t, revoked)
	r.wants(t, []string{"belay.fence.losses belay.fence.stage=commit,belay.graph.id=order = 1"})
	if !slices.ContainsFunc(r.sums(), func(line string) bool {
		return strings.HasPrefix(line, "belay.node.duration belay.graph.id=order,belay.node.outcome=completed,belay.node.type=pay")
	}) {
		t.Errorf("no duration of the node among\n%s", strings.Join(r.sums(), "\n"))
	}
}

func (r *recorder) wants(t *testing.T, lines []string) {
	t.Helper()
	got := r.sums()
	for _, line := range lines {
		if !slices.Contains(got, line) {
			t.Errorf("not measured: %s, but\n%s", line, strings.Join(got, "\n"))
		}
	}
}

// Every instrument that is listed is made, and every measurement is of one that is listed, with the
// attributes that are listed.
func TestMetricsAreThoseThatAreListed(t *testing.T) {
	b := newBench()
	var inNodes []trace.SpanContext
	e, r := b.process(t, otel.Options{}, flaky(&inNodes))
	b.start(t, e, lifecycle.StartOptions{})
	b.drain(t, e)
	listed := map[string][]string{}
	for _, m := range otel.Metrics() {
		listed[m.Name] = m.Attributes
		for other := range listed {
			if strings.HasPrefix(other, m.Name+".") || strings.HasPrefix(m.Name, other+".") {
				t.Errorf("%s and %s: a name must not be the namespace of another", m.Name, other)
			}
		}
	}
	for _, m := range r.measured {
		attributes, ok := listed[m.name]
		if !ok {
			t.Errorf("%s is not listed", m.name)
		}
		for _, kv := range m.attrs.ToSlice() {
			if !slices.Contains(attributes, string(kv.Key)) {
				t.Errorf("%s is measured with %s, which is not listed", m.name, kv.Key)
			}
		}
	}
}
