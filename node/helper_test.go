package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// oneNode is a graph whose only node n has a type's name, all of its reads as inputs and
// all of its writes as fields, of any value.
func oneNode(use string, version int, config string, reads, writes []string) *graph.Document {
	d := &graph.Document{
		ID:     "g",
		Inputs: map[string]graph.Input{}, Fields: map[string]graph.Field{},
		Edges:   map[string]graph.Edge{"e": {From: graph.Sources{graph.Start}, To: "n"}, "f": {From: graph.Sources{"n"}, To: graph.Finish}},
		Outputs: map[string]graph.Output{},
	}
	n := graph.Node{Use: use, Version: version, Reads: map[string]string{}, Writes: map[string]string{}}
	if config != "" {
		n.Config = value.Value(config)
	}
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

func publish(t *testing.T, d *graph.Document, catalog graph.Catalog) *graph.Compiled {
	t.Helper()
	c, err := graph.Publish(d, catalog)
	if err != nil {
		t.Fatalf("publish: %v", err)
	}
	return c
}

// site is a prepared graph of one node.
type site struct {
	*node.Prepared
	call node.Call
}

// place prepares a graph of one node of type typ, with its declared reads and writes.
func place(t *testing.T, typ node.Type, config string, reads map[string]string, writes ...string) site {
	t.Helper()
	r := node.NewRegistry().Add(typ)
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	c := typ.Contract()
	names := []string{}
	for name := range c.Reads {
		names = append(names, name)
	}
	for name := range reads {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for name := range c.Writes {
		writes = append(writes, name)
	}
	slices.Sort(writes)
	writes = slices.Compact(writes)
	p, err := r.Prepare(publish(t, oneNode(c.Name, 0, config, names, writes), r), 0)
	if err != nil {
		t.Fatalf("prepare: %v", err)
	}
	call := node.Call{
		Run: "r", Node: "n", Task: "r:1:n", AttemptID: "r:1:n:1", Attempt: 1, IdempotencyKey: "r:1:n",
		PlannedAt: noon, Now: func() time.Time { return noon }, Reads: map[string]value.Value{}, Writes: writes,
	}
	for name, raw := range reads {
		call.Reads[name] = value.Value(raw)
	}
	return site{p, call}
}

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

func (s site) run(t *testing.T, ctx context.Context) run.Result {
	t.Helper()
	call := s.call
	r, err := s.Run(ctx, &call)
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	return r
}

func answering(answer func(context.Context) error) node.Type {
	return node.Of("t", 1, func(ctx context.Context, _ struct{}) (struct{}, error) { return struct{}{}, answer(ctx) })
}

func mustFailure(t *testing.T, r run.Result, kind run.ResultKind) run.Failure {
	t.Helper()
	f, _ := r.Failure()
	if r.Kind() != kind {
		t.Fatalf("the result is %v (%+v), want %v", r.Kind(), f, kind)
	}
	return f
}

func text(update map[string]value.Value) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(update); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(b.String())
}
