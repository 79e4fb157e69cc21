package std_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// drive runs a graph of built-in nodes on the pure machine, with a clock of its own.
type drive struct {
	t        *testing.T
	machine  *run.Machine
	prepared *node.Prepared
	document *run.Document
	now      time.Time
	attempts int
}

func newDrive(t *testing.T, document, input string) *drive {
	t.Helper()
	doc, err := graph.ParseYAML([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	r := std.Register(node.NewRegistry())
	c, err := graph.Publish(doc, r)
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Prepare(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	d := &drive{t: t, machine: run.NewMachine(c, value.Limits{}), prepared: p, now: noon}
	proposal, err := d.machine.Init(run.Initial{Run: "r", Input: value.Value(input)}, d.now)
	if err != nil {
		t.Fatal(err)
	}
	d.document = proposal.Document
	return d
}

// on drives until the run finishes or waits. What is due later is waited for at once.
func (d *drive) on() {
	d.t.Helper()
	for range 1000 {
		plan, err := d.machine.Plan(d.document, d.now)
		switch {
		case err != nil:
			d.t.Fatal(err)
		case plan.Finished, plan.Waiting:
			return
		case plan.Commit != nil:
			d.document = plan.Commit.Document
		case !plan.Wake.IsZero():
			d.now = plan.Wake
		default:
			d.execute(plan)
		}
	}
	d.t.Fatal("the run does not come to an end")
}

func (d *drive) execute(plan run.Plan) {
	d.t.Helper()
	var results []run.Result
	for _, a := range plan.Execute {
		call := &node.Call{
			Run: "r", Node: a.Node.ID, Task: a.Task, AttemptID: a.AttemptID, Attempt: a.Attempt, IdempotencyKey: a.Task,
			PlannedAt: a.PlannedAt, Answers: a.Answers, Reads: map[string]value.Value{}, Now: func() time.Time { return d.now },
		}
		for _, c := range a.Snapshot {
			call.Reads[c.Name] = c.Value
		}
		for _, b := range a.Node.Writes {
			call.Writes = append(call.Writes, b.Name)
		}
		d.attempts++
		r, err := d.prepared.Run(d.t.Context(), call)
		if err != nil {
			d.t.Fatal(err)
		}
		results = append(results, r)
	}
	p, err := d.machine.Settle(d.document, plan, results, d.now)
	if err != nil {
		d.t.Fatal(err)
	}
	d.document = p.Document
}

func (d *drive) answer(raw string) {
	d.t.Helper()
	open := d.document.OpenInterrupts()
	if len(open) != 1 {
		d.t.Fatalf("%d open interrupts", len(open))
	}
	p, err := d.machine.Resolve(d.document, open[0].ID, value.Value(raw), d.now)
	if err != nil {
		d.t.Fatal(err)
	}
	d.document = p.Document
	d.on()
}

func (d *drive) finished(output string) {
	d.t.Helper()
	if d.document.Status != run.Done || string(d.document.Output) != output {
		d.t.Fatalf("status %s, output %s, failure %+v, want %s", d.document.Status, d.document.Output, d.document.Failure, output)
	}
}

func TestH34ASleepOfADayEndsAtOnceWithAVirtualClock(t *testing.T) {
	tests := map[string]struct {
		config   string
		end      time.Time
		attempts int
	}{
		"for":            {`{for: 24h}`, noon.Add(24 * time.Hour), 2},
		"for a template": {`{for: "${hours}h"}`, noon.Add(24 * time.Hour), 2},
		"until":          {`{until: "2030-02-01T00:00:00+01:00"}`, time.Date(2030, 1, 31, 23, 0, 0, 0, time.UTC), 2},
		"until then":     {`{until: "${then}"}`, time.Date(2030, 1, 31, 23, 0, 0, 0, time.UTC), 2},
		"for nothing":    {`{for: 0s}`, noon, 1},
		"for less":       {`{for: -1h}`, noon, 1},
		"until before":   {`{until: "2020-01-01T00:00:00Z"}`, noon, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDrive(t, `
id: nap
inputs: {hours: {schema: {type: integer}}, then: {schema: {type: string}}}
nodes: {sleep: {use: sleep, reads: {hours: hours, then: then}, config: `+tt.config+`}}
edges: {in: {from: $start, to: sleep}, out: {from: sleep, to: $finish}}
`, `{"hours":24,"then":"2030-02-01T00:00:00+01:00"}`)
			d.on()
			d.finished("{}")
			if !d.now.Equal(tt.end) || d.attempts != tt.attempts {
				t.Errorf("it ended at %v after %d attempts, want %v after %d", d.now, d.attempts, tt.end, tt.attempts)
			}
		})
	}
}

func TestASleepInACycleSleepsEachRound(t *testing.T) {
	d := newDrive(t, `
id: rounds
fields: {n: {schema: {type: integer}, default: 0}}
nodes:
  sleep: {use: sleep, config: {for: 1h}}
  count: {use: set, reads: {n: n}, writes: {n: n}, config: {values: {n: "${n + 1}"}}}
edges:
  in: {from: $start, to: sleep}
  on: {from: sleep, to: count}
  again: {from: count, to: sleep, when: state.n < 3}
outputs: {n: {from: n}}
policies: {max_supersteps: 20}
`, `{}`)
	d.on()
	d.finished(`{"n":3}`)
	if !d.now.Equal(noon.Add(3 * time.Hour)) {
		t.Errorf("it ended at %v", d.now)
	}
}

func TestASleepThatCannotBeReadFails(t *testing.T) {
	for config, want := range map[string]string{
		`{"for":"${x}"}`:   "config/for: it is not a duration",
		`{"until":"${x}"}`: "config/until: it is not an instant",
	} {
		f := place(t, "sleep", config, map[string]string{"x": `"soon"`}).failed(t, run.ResultPermanent)
		if !strings.Contains(f.Message, want) {
			t.Errorf("failure %+v does not say %q", f, want)
		}
	}
}

const askingGraph = `
id: asking
fields:
  answers: {schema: {type: array, items: {type: string}}, reducer: append}
  last: {schema: {type: string}}
nodes:
  ask:
    use: ask
    reads: {answers: answers}
    writes: {answer: answers}
    config: {question: {text: "what comes after ${answers ?? []}?", n: "${len(answers ?? [])}"}, schema: {type: string, minLength: 1}, into: answer}
edges:
  in: {from: $start, to: ask}
  again: {from: ask, to: ask, when: len(state.answers) < 3}
outputs: {answers: {from: answers}}
policies: {max_supersteps: 20}
`

func TestAnAskInACycleAsksAnewEachRound(t *testing.T) {
	d := newDrive(t, askingGraph, `{}`)
	d.on()
	ids := map[string]bool{}
	for i, answer := range []string{`"a"`, `"b"`, `"c"`} {
		if d.document.Status != run.Waiting {
			t.Fatalf("status %s in round %d", d.document.Status, i)
		}
		q := d.document.OpenInterrupts()[0]
		ids[q.ID] = true
		want := []string{`{"n":0,"text":"what comes after []?"}`, `{"n":1,"text":"what comes after [\"a\"]?"}`, `{"n":2,"text":"what comes after [\"a\",\"b\"]?"}`}[i]
		if string(q.Question) != want || string(q.Schema) != `{"minLength":1,"type":"string"}` {
			t.Errorf("question %s, schema %s, want %s", q.Question, q.Schema, want)
		}
		d.answer(answer)
	}
	d.finished(`{"answers":["a","b","c"]}`)
	if len(ids) != 3 {
		t.Errorf("interrupt ids %v", ids)
	}
}

func TestAnAskPastItsDeadlineIsAnsweredByItsDefault(t *testing.T) {
	for name, tt := range map[string]struct {
		config string
		end    time.Time
		output string
	}{
		"after":    {`{question: "ship?", into: ok, deadline: 48h, default: "${fallback}"}`, noon.Add(48 * time.Hour), `{"ok":{"by":"nobody","n":1.50}}`},
		"at":       {`{question: "ship?", into: ok, deadline: "2030-02-01T00:00:00Z", default: [1]}`, time.Date(2030, 2, 1, 0, 0, 0, 0, time.UTC), `{"ok":[1]}`},
		"template": {`{question: "ship?", into: ok, deadline: "${hours}h", default: "after ${hours}"}`, noon.Add(2 * time.Hour), `{"ok":"after 2"}`},
		"null":     {`{question: "ship?", into: ok, deadline: 1h}`, noon.Add(time.Hour), `{"ok":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrive(t, `
id: shipping
inputs: {fallback: {schema: {}}, hours: {schema: {type: integer}}}
fields: {ok: {schema: {}}}
nodes: {ask: {use: ask, reads: {fallback: fallback, hours: hours}, writes: {ok: ok}, config: `+tt.config+`}}
edges: {in: {from: $start, to: ask}, out: {from: ask, to: $finish}}
outputs: {ok: {from: ok}}
`, `{"fallback":{"by":"nobody","n":1.50},"hours":2}`)
			d.on()
			d.finished(tt.output)
			if !d.now.Equal(tt.end) {
				t.Errorf("it ended at %v, want %v", d.now, tt.end)
			}
		})
	}
}

func TestAnAskWithoutAFieldOnlyWaits(t *testing.T) {
	d := newDrive(t, `
id: gate
nodes: {ask: {use: ask, config: {question: proceed}}}
edges: {in: {from: $start, to: ask}, out: {from: ask, to: $finish}}
`, `{}`)
	d.on()
	if d.document.Status != run.Waiting {
		t.Fatalf("status %s", d.document.Status)
	}
	d.answer(`{"anything":1}`)
	d.finished("{}")
}

func TestAnAskThatCannotAskFails(t *testing.T) {
	for config, want := range map[string]string{
		`{"question":"${x.y.z}"}`:                               "config/question",
		`{"question":"?","deadline":"${x}"}`:                    "config/deadline: it is neither",
		`{"question":"?","deadline":"1h","default":"${x.y.z}"}`: "config/default",
	} {
		f := place(t, "ask", config, map[string]string{"x": `"soon"`}).failed(t, run.ResultPermanent)
		if !strings.Contains(f.Message, want) {
			t.Errorf("failure %+v does not say %q", f, want)
		}
	}
}

func TestAPipelineOfBuiltInNodes(t *testing.T) {
	d := newDrive(t, `
id: pipeline
inputs: {names: {schema: {type: array, items: {type: string}}, required: true}}
fields:
  greeting: {schema: {type: string}}
  count: {schema: {type: integer}}
  big: {schema: {type: integer}}
nodes:
  greet:
    use: set
    reads: {names: names}
    writes: {greeting: greeting, count: count, big: big}
    config: {values: {greeting: "hello ${names[0]}", count: "${len(names)}", big: 9007199254740993}}
edges: {in: {from: $start, to: greet}, out: {from: greet, to: $finish}}
outputs: {greeting: {from: greeting}, count: {from: count}, big: {from: big}}
`, `{"names":["ann","bob"]}`)
	d.on()
	d.finished(`{"big":9007199254740993,"count":2,"greeting":"hello ann"}`)
}
