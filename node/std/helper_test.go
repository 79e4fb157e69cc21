package std_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// document is a graph of one node n, whose reads are inputs and whose writes are fields
// of any value.
func document(use, config string, reads, writes []string) *graph.Document {
	d := &graph.Document{
		ID:     "g",
		Inputs: map[string]graph.Input{}, Fields: map[string]graph.Field{},
		Edges: map[string]graph.Edge{"e": {From: graph.Sources{graph.Start}, To: "n"}, "f": {From: graph.Sources{"n"}, To: graph.Finish}},
	}
	n := graph.Node{Use: use, Config: value.Value(config), Reads: map[string]string{}, Writes: map[string]string{}}
	for _, name := range reads {
		d.Inputs["in_"+name] = graph.Input{Schema: value.Value("{}")}
		n.Reads[name] = "in_" + name
	}
	for _, name := range writes {
		d.Fields["out_"+name] = graph.Field{Schema: value.Value("{}")}
		n.Writes[name] = "out_" + name
	}
	d.Nodes = map[string]graph.Node{"n": n}
	return d
}

// site is a prepared graph of one node.
type site struct {
	*node.Prepared
	call node.Call
}

// place prepares a built-in node over what it reads (null is absent).
func place(t *testing.T, use, config string, reads map[string]string, writes ...string) site {
	t.Helper()
	names := []string{}
	values := map[string]value.Value{}
	for name, raw := range reads {
		names = append(names, name)
		if raw != "" {
			values[name] = value.Value(raw)
		}
	}
	slices.Sort(names)
	r := std.Register(node.NewRegistry())
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	c, err := graph.Publish(document(use, config, names, writes), r)
	if err != nil {
		t.Fatalf("publish: %v", err)
	}
	p, err := r.Prepare(c, 0)
	if err != nil {
		t.Fatalf("prepare: %v", err)
	}
	return site{p, node.Call{
		Run: "r", Node: "n", Task: "r:1:n", AttemptID: "r:1:n:1", Attempt: 1, IdempotencyKey: "r:1:n",
		PlannedAt: noon, Now: func() time.Time { return noon }, Reads: values, Writes: writes,
	}}
}

func (s site) run(t *testing.T, ctx context.Context) run.Result {
	t.Helper()
	call := s.call
	r, err := s.Run(ctx, &call)
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	return r
}

// completed runs a node that must complete, and gives its update as text by name.
func (s site) completed(t *testing.T) map[string]string {
	t.Helper()
	r := s.run(t, t.Context())
	if r.Kind() != run.ResultCompleted {
		f, _ := r.Failure()
		t.Fatalf("the result is %v: %+v", r.Kind(), f)
	}
	out := map[string]string{}
	for name, v := range r.Update() {
		out[name] = string(v)
	}
	return out
}

func (s site) failed(t *testing.T, kind run.ResultKind) run.Failure {
	t.Helper()
	r := s.run(t, t.Context())
	f, _ := r.Failure()
	if r.Kind() != kind {
		t.Fatalf("the result is %v (%+v, %v), want %v", r.Kind(), f, r.Update(), kind)
	}
	return f
}
