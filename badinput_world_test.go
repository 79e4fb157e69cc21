package belay_test

import (
	"context"
	"testing"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// world is what the calls with bad input are made on: everything else about them is right.
type world struct {
	t     testing.TB
	ctx   context.Context
	store *memory.Store // of the engine
}

func newWorld(t testing.TB) *world { return &world{t: t, ctx: t.Context()} }

// must fails the test when the world itself is broken.
func must[T any](w *world) func(T, error) T {
	return func(v T, err error) T {
		w.t.Helper()
		if err != nil {
			w.t.Fatalf("the world is broken: %v", err)
		}
		return v
	}
}

// worldGraph reads an input, writes a field, asks.
const worldGraph = `
id: world
inputs: {name: {schema: {type: string}, required: true}}
fields: {text: {schema: {type: string}}}
nodes: {work: {use: work, reads: {name: name}, writes: {text: text}}}
edges: {in: {from: $start, to: work, when: 'state.name != ""'}, out: {from: work, to: $finish}}
outputs: {text: {from: text}}
`

func (w *world) nodes() *node.Registry {
	return node.NewRegistry().Add(node.Of("work", 1, func(ctx context.Context, p person) (message, error) {
		_, ok, err := node.Answered[string](ctx, "q")
		if err != nil || ok {
			return message{"answered"}, err
		}
		return message{}, node.Ask(node.Question{ID: "q"})
	}))
}

func (w *world) document() *graph.Document {
	return must[*graph.Document](w)(graph.ParseYAML([]byte(worldGraph)))
}

func (w *world) compiled() *graph.Compiled {
	return must[*graph.Compiled](w)(graph.Publish(w.document(), w.nodes()))
}

func (w *world) machine() *run.Machine { return run.NewMachine(w.compiled(), value.Limits{}) }

// initial is the first commit of the run "r".
func (w *world) initial() run.Proposal {
	return must[run.Proposal](w)(w.machine().Init(run.Initial{Run: "r", Input: value.Value(`{"name":"Ada"}`)}, epoch))
}

// asking is the run "r" with its question open.
func (w *world) asking() *run.Document {
	return w.settled(run.Ask("work", run.Question{ID: "q"})).Document
}

func (w *world) settled(result run.Result) run.Proposal {
	m, d := w.machine(), w.initial().Document
	plan := must[run.Plan](w)(m.Plan(d, epoch))
	return must[run.Proposal](w)(m.Settle(d, plan, []run.Result{result}, epoch))
}

// engine is an engine with the world's graph published, and the run "r" asking its question.
func (w *world) engine() (*belay.Engine, belay.GraphRef) {
	clock := lifecycle.NewVirtualClock(epoch)
	w.store = memory.New(memory.Options{Now: clock.Now})
	e := must[*belay.Engine](w)(belay.New(belay.Config{
		Backend: w.store, Nodes: w.nodes(), Clock: clock, Logger: quiet,
	}))
	ref := must[belay.GraphRef](w)(e.Publish(w.ctx, w.document()))
	must[*belay.Run](w)(e.Start(w.ctx, ref, person{"Ada"}, belay.StartOptions{ID: "r"}))
	must[belay.Drained](w)(e.Drain(w.ctx, belay.DrainOptions{}))
	return e, ref
}
