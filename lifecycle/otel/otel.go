// Package otel tells OpenTelemetry what an engine does: one trace for a run, from its start
// through every process that touches it, and metrics. It uses OpenTelemetry's API only; which SDK
// and exporter take what it tells is the host's choice.
//
//	telemetry, err := otel.New(otel.Options{})
//	engine, err := belay.New(belay.Config{Observers: []lifecycle.Observer{telemetry}, ...})
//
// The trace context of a start is kept in the run's metadata, under the names of the propagator's
// fields ("traceparent" and "tracestate" by default). A caller who sets these names in the metadata of a
// start decides the trace himself.
//
// Spans (attributes begin with "belay."; none holds state, input, output, error texts or tokens):
//
//   - "start GRAPH", under the caller's span: the run is stored, or not;
//   - "claim GRAPH", under the start's span, as long as nothing: a process has taken the run. It is
//     exported even if that process dies at once, so what happens under the claim has a parent;
//   - "attempt TYPE", under the claim's: one node at work. The node's context carries it;
//   - "commit GRAPH", under the claim's: a transition is stored. That of a signal is under the
//     span of whoever called Resolve or Cancel, and linked to the start's;
//   - "drive GRAPH", under the claim's: the whole time that the claim was held, once it has ended.
package otel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

// scope names the instrumentation.
const scope = "github.com/belay-run/belay/lifecycle/otel"

// Options of an observer. The zero value is fine.
type Options struct {
	// TracerProvider defaults to the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider defaults to the global one.
	MeterProvider metric.MeterProvider
	// Propagator writes the trace context of a start into the run's metadata, and reads it there.
	// Defaults to propagation.TraceContext: baggage is not stored.
	Propagator propagation.TextMapPropagator
	// SeparateTraces begins a trace of its own with every claim, linked to the start's span, for runs
	// that live longer than a trace should. By default the spans of a run are one trace.
	SeparateTraces bool
}

// New makes an observer. Its error is the meter's, which refused an instrument.
func New(opts Options) (lifecycle.Observer, error) {
	if opts.TracerProvider == nil {
		opts.TracerProvider = otel.GetTracerProvider()
	}
	if opts.MeterProvider == nil {
		opts.MeterProvider = otel.GetMeterProvider()
	}
	if opts.Propagator == nil {
		opts.Propagator = propagation.TraceContext{}
	}
	measures, err := newInstruments(opts.MeterProvider.Meter(scope))
	if err != nil {
		return lifecycle.Observer{}, err
	}
	t := &telemetry{Options: opts, tracer: opts.TracerProvider.Tracer(scope), instruments: measures}
	return lifecycle.Observer{
		Starting: t.starting, Started: t.started, Committed: t.committed, Grouped: t.grouped,
		Claimed: t.claimed, Ended: t.ended, FenceLost: t.fenceLost, Abandoned: t.abandoned, Poisoned: t.poisoned,
		Attempting: t.attempting, Attempted: t.attempted,
	}, nil
}

type telemetry struct {
	Options
	instruments
	tracer trace.Tracer
}

// about are the attributes of a span that say which run it is about.
func about(r lifecycle.ObservedRun) []attribute.KeyValue {
	attrs := []attribute.KeyValue{keyRun.String(r.Run), keyGraph.String(r.Graph.ID), keyGraphHash.String(r.Graph.Hash)}
	if tenant, ok := r.Owner.Tenant(); ok {
		attrs = append(attrs, keyTenant.String(tenant))
	}
	if r.Seq > 0 {
		attrs = append(attrs, keySeq.Int64(r.Seq))
	}
	return attrs
}

// origin is the span of the run's start.
func (t *telemetry) origin(metadata map[string]string) trace.SpanContext {
	if len(metadata) == 0 {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(t.Propagator.Extract(context.Background(), propagation.MapCarrier(metadata)))
}

func (t *telemetry) starting(ctx context.Context, s lifecycle.ObservedStart) (context.Context, map[string]string) {
	ctx, _ = t.tracer.Start(ctx, "start "+s.Graph.ID, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(about(s.ObservedRun)...))
	carrier := propagation.MapCarrier{}
	t.Propagator.Inject(ctx, carrier)
	return ctx, carrier
}

func (t *telemetry) started(ctx context.Context, s lifecycle.ObservedStart) {
	span := trace.SpanFromContext(ctx)
	outcome := "stored"
	switch {
	case s.Err != nil:
		outcome = "refused"
		span.SetStatus(codes.Error, "the start was refused")
	case s.Existing:
		outcome = "existing"
		span.SetAttributes(keyRun.String(s.Run))
	}
	span.SetAttributes(keyStartOutcome.String(outcome))
	span.End()
	t.starts.Add(ctx, 1, metric.WithAttributes(keyGraph.String(s.Graph.ID), keyStartOutcome.String(outcome)))
}

func (t *telemetry) claimed(ctx context.Context, c lifecycle.ObservedClaim) context.Context {
	kind := kindReady
	switch {
	case c.Fresh:
		kind = kindFresh
	case c.Class == claim.Expired:
		kind = kindStolen
	}
	ofGraph := metric.WithAttributes(keyGraph.String(c.Graph.ID))
	t.claims.Add(ctx, 1, metric.WithAttributes(keyGraph.String(c.Graph.ID), keyClaimKind.String(kind)))
	t.active.Add(ctx, 1, ofGraph)
	if !c.Due.IsZero() {
		t.queueAge.Record(ctx, max(c.At.Sub(c.Due), 0).Seconds(), ofGraph)
	}
	opts := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(append(about(c.ObservedRun), keyClaimKind.String(kind), keyClaimAttempt.Int(c.Attempt))...),
	}
	switch origin := t.origin(c.Metadata); {
	case !origin.IsValid():
	case t.SeparateTraces:
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: origin}))
	default:
		ctx = trace.ContextWithRemoteSpanContext(ctx, origin)
	}
	ctx, span := t.tracer.Start(ctx, "claim "+c.Graph.ID, opts...)
	span.End()
	return ctx
}

func (t *telemetry) ended(ctx context.Context, e lifecycle.ObservedEnd) {
	t.active.Add(ctx, -1, metric.WithAttributes(keyGraph.String(e.Graph.ID)))
	attrs := append(about(e.ObservedRun), keyCommits.Int(e.Commits))
	if e.Lost != "" {
		attrs = append(attrs, keyFenceStage.String(string(e.Lost)))
	}
	t.past(ctx, "drive "+e.Graph.ID, e.Held, trace.WithAttributes(attrs...))
}

// past is a span of what has just ended.
func (t *telemetry) past(ctx context.Context, name string, took time.Duration, opts ...trace.SpanStartOption) {
	now := time.Now()
	_, span := t.tracer.Start(ctx, name, append(opts, trace.WithTimestamp(now.Add(-took)))...)
	span.End(trace.WithTimestamp(now))
}

func (t *telemetry) committed(ctx context.Context, c lifecycle.ObservedCommit) {
	ofType := keyCheckpoint.String(string(c.Type))
	t.commits.Add(ctx, 1, metric.WithAttributes(keyGraph.String(c.Graph.ID), ofType))
	t.commitDuration.Record(ctx, c.Took.Seconds(), metric.WithAttributes(ofType))
	opts := []trace.SpanStartOption{trace.WithAttributes(append(about(c.ObservedRun), ofType, keyStatus.String(string(c.Status)))...)}
	if origin := t.origin(c.Metadata); origin.IsValid() && !c.Driven {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: origin}))
	}
	t.past(ctx, "commit "+c.Graph.ID, c.Took, opts...)
}

func (t *telemetry) grouped(ctx context.Context, g lifecycle.ObservedGroup) {
	t.groupSize.Record(ctx, int64(g.Size))
}

func (t *telemetry) fenceLost(ctx context.Context, f lifecycle.ObservedLoss) {
	t.losses.Add(ctx, 1, metric.WithAttributes(keyGraph.String(f.Graph.ID), keyFenceStage.String(string(f.Stage))))
}

func (t *telemetry) abandoned(ctx context.Context, a lifecycle.Abandon) {
	reason := ""
	if len(a.Reasons) > 0 {
		reason = a.Reasons[0].Code
	}
	t.abandons.Add(ctx, 1, metric.WithAttributes(
		keyGraph.String(a.Graph.ID), keyAbandonReason.String(reason), keyDisposition.String(a.Disposition.String()),
	))
}

func (t *telemetry) poisoned(ctx context.Context, p lifecycle.ObservedPoison) {
	t.poisons.Add(ctx, 1, metric.WithAttributes(keyGraph.String(p.Graph.ID), keyPoisonReason.String(p.Reason)))
}

func (t *telemetry) attempting(ctx context.Context, a lifecycle.ObservedAttempt) context.Context {
	ctx, _ = t.tracer.Start(ctx, "attempt "+a.Use, trace.WithAttributes(append(about(a.ObservedRun),
		keyNode.String(a.Node), keyNodeType.String(a.Use), keyNodeVersion.Int(a.Version), keyTask.String(a.Task), keyAttempt.Int(a.Attempt))...))
	return ctx
}

func (t *telemetry) attempted(ctx context.Context, a lifecycle.ObservedAttempt) {
	outcome := outcomeOf(a)
	span := trace.SpanFromContext(ctx)
	span.SetAttributes(keyOutcome.String(outcome))
	if a.Outcome == run.ResultRetry || a.Outcome == run.ResultPermanent {
		span.SetAttributes(keyErrorType.String(a.Code))
		span.SetStatus(codes.Error, a.Code)
	}
	span.End()
	t.nodeDuration.Record(ctx, a.Took.Seconds(), metric.WithAttributes(
		keyGraph.String(a.Graph.ID), keyNodeType.String(a.Use), keyOutcome.String(outcome),
	))
	if a.Stuck {
		t.stuck.Add(ctx, 1, metric.WithAttributes(keyNodeType.String(a.Use)))
	}
}

// outcomeOf names what an attempt came to.
func outcomeOf(a lifecycle.ObservedAttempt) string {
	if a.Outcome == 0 {
		return "cut"
	}
	return a.Outcome.String()
}
