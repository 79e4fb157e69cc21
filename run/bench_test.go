package run

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

// oneNode is a run of one node that reads 1 KB and writes a number.
func oneNode(tb testing.TB) (*Machine, *Document, time.Time) {
	tb.Helper()
	doc, err := graph.ParseYAML([]byte(`
id: one
inputs: {payload: {schema: {type: string}, required: true}}
fields: {total: {schema: {type: integer}}}
nodes: {work: {use: work, reads: {payload: payload}, writes: {total: total}}}
edges: {start: {from: $start, to: work}, end: {from: work, to: $finish}}
outputs: {total: {from: total}}
`))
	if err != nil {
		tb.Fatal(err)
	}
	g, err := graph.Publish(doc, &graph.Manifest{Format: 1, Nodes: []graph.NodeType{{Name: "work", Version: 1, OpenReads: true, OpenWrites: true}}})
	if err != nil {
		tb.Fatal(err)
	}
	m := NewMachine(g, value.Limits{})
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p, err := m.Init(Initial{Run: "01JNZ7V4T8ZK2W3N8Q5Y6R7S9T", Input: value.Value(`{"payload":"` + strings.Repeat("x", 1000) + `"}`)}, now)
	if err != nil {
		tb.Fatal(err)
	}
	return m, p.Document, now
}

// The calibration that the figures of the others are read against.
func BenchmarkCalibration(b *testing.B) {
	data := make([]byte, 1<<20)
	for b.Loop() {
		sha256.Sum256(data)
	}
}

func BenchmarkPlanAndSettle(b *testing.B) {
	m, d, now := oneNode(b)
	update := map[string]value.Value{"total": value.Value("42")}
	b.ReportAllocs()
	for b.Loop() {
		plan, err := m.Plan(d, now)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := m.Settle(d, plan, []Result{Completed("work", update)}, now); err != nil {
			b.Fatal(err)
		}
	}
}

func settledOneNode(tb testing.TB) Proposal {
	tb.Helper()
	m, d, now := oneNode(tb)
	plan, err := m.Plan(d, now)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := m.Settle(d, plan, []Result{Completed("work", map[string]value.Value{"total": value.Value("42")})}, now)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func BenchmarkInit(b *testing.B) {
	m, d, now := oneNode(b)
	in := Initial{Run: d.ID, Input: value.Value(`{"payload":` + string(d.Value("payload")) + `}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Init(in, now); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	p := settledOneNode(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Encode(p.Document); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	raw, err := Encode(settledOneNode(b).Document)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeEvents(b *testing.B) {
	p := settledOneNode(b)
	b.ReportAllocs()
	for b.Loop() {
		for _, e := range p.Events {
			if _, err := EncodeEvent(e); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkValid(b *testing.B) {
	p := settledOneNode(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Document.Valid(); err != nil {
			b.Fatal(err)
		}
	}
}

// What a fleet reads right after a release whose format is newer.
func BenchmarkDecodeFormat1(b *testing.B) {
	raw, err := EncodeAs(settledOneNode(b).Document, 1)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}
