package otel_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
)

// recorder is a small SDK: it keeps spans and measurements in memory.
type recorder struct {
	nooptrace.TracerProvider
	noopmetric.MeterProvider
	mu       sync.Mutex
	ids      byte
	ended    []*span
	measured []measurement
}

type span struct {
	nooptrace.Span
	r      *recorder
	name   string
	own    trace.SpanContext
	parent trace.SpanContext
	links  []trace.Link
	attrs  map[attribute.Key]attribute.Value
	status codes.Code
}

type measurement struct {
	name  string
	value float64
	attrs attribute.Set
}

type tracer struct {
	nooptrace.Tracer
	r *recorder
}

func (r *recorder) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracer{r: r} }

func (t tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	cfg := trace.NewSpanStartConfig(opts...)
	r := t.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids++
	s := &span{r: r, name: name, parent: trace.SpanContextFromContext(ctx), links: cfg.Links(), attrs: map[attribute.Key]attribute.Value{}}
	id := trace.SpanContextConfig{TraceID: s.parent.TraceID(), SpanID: trace.SpanID{1, r.ids}, TraceFlags: trace.FlagsSampled}
	if !s.parent.IsValid() {
		id.TraceID = trace.TraceID{2, r.ids}
	}
	s.own = trace.NewSpanContext(id)
	for _, kv := range cfg.Attributes() {
		s.attrs[kv.Key] = kv.Value
	}
	return trace.ContextWithSpan(ctx, s), s
}

func (s *span) SpanContext() trace.SpanContext { return s.own }

func (s *span) SetAttributes(kvs ...attribute.KeyValue) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for _, kv := range kvs {
		s.attrs[kv.Key] = kv.Value
	}
}

func (s *span) SetStatus(c codes.Code, _ string) { s.status = c }

func (s *span) End(...trace.SpanEndOption) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.ended = append(s.r.ended, s)
}

// named are the ended spans of a name, in the order they ended in.
func (r *recorder) named(name string) (found []*span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.ended {
		if s.name == name {
			found = append(found, s)
		}
	}
	return found
}

type meter struct {
	noopmetric.Meter
	r *recorder
}

func (r *recorder) Meter(string, ...metric.MeterOption) metric.Meter { return meter{r: r} }

func (r *recorder) measure(name string, value float64, attrs attribute.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measured = append(r.measured, measurement{name, value, attrs})
}

// sums adds up what was measured, by name and attributes, as readable lines.
func (r *recorder) sums() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sums := map[string]float64{}
	for _, m := range r.measured {
		sums[m.name+" "+m.attrs.Encoded(attribute.DefaultEncoder())] += m.value
	}
	var lines []string
	for of, sum := range sums {
		lines = append(lines, fmt.Sprintf("%s = %v", of, sum))
	}
	slices.Sort(lines)
	return lines
}

type (
	intCounter struct {
		noopmetric.Int64Counter
		r    *recorder
		name string
	}
	intUpDown struct {
		noopmetric.Int64UpDownCounter
		r    *recorder
		name string
	}
	floatHistogram struct {
		noopmetric.Float64Histogram
		r    *recorder
		name string
	}
	intHistogram struct {
		noopmetric.Int64Histogram
		r    *recorder
		name string
	}
)

func (m meter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return intCounter{r: m.r, name: name}, nil
}

func (m meter) Int64UpDownCounter(name string, _ ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	return intUpDown{r: m.r, name: name}, nil
}

func (m meter) Float64Histogram(name string, _ ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return floatHistogram{r: m.r, name: name}, nil
}

func (m meter) Int64Histogram(name string, _ ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	return intHistogram{r: m.r, name: name}, nil
}

func (c intCounter) Add(_ context.Context, n int64, opts ...metric.AddOption) {
	c.r.measure(c.name, float64(n), metric.NewAddConfig(opts).Attributes())
}

func (c intUpDown) Add(_ context.Context, n int64, opts ...metric.AddOption) {
	c.r.measure(c.name, float64(n), metric.NewAddConfig(opts).Attributes())
}

func (h floatHistogram) Record(_ context.Context, v float64, opts ...metric.RecordOption) {
	h.r.measure(h.name, v, metric.NewRecordConfig(opts).Attributes())
}

func (h intHistogram) Record(_ context.Context, v int64, opts ...metric.RecordOption) {
	h.r.measure(h.name, float64(v), metric.NewRecordConfig(opts).Attributes())
}
