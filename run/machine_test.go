package run_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

func TestAMachineNeedsItsGraphAndTheTime(t *testing.T) {
	good := newDriver(t, two, value.Limits{})
	other := newDriver(t, strings.Replace(two, "id: g", "id: h", 1), value.Limits{})
	plan := good.plan()
	results := []run.Result{run.Completed("ask", nil), run.Completed("other", nil)}
	nothing := run.NewMachine(nil, value.Limits{})
	var none *run.Machine
	for _, m := range []*run.Machine{nothing, none} {
		_, init := m.Init(run.Initial{Run: "r"}, epoch)
		_, planned := m.Plan(good.doc, epoch)
		_, settled := m.Settle(good.doc, plan, results, epoch)
		_, resolved := m.Resolve(good.doc, "q", value.Null(), epoch)
		for _, err := range []error{init, planned, settled, resolved} {
			if !errors.Is(err, claim.ErrInvalidArgument) {
				t.Errorf("without a graph: %v", err)
			}
		}
	}
	m := good.machine
	for name, c := range map[string]struct {
		doc  *run.Document
		now  time.Time
		want error
	}{
		"no document":               {nil, epoch, run.ErrInvalidDocument},
		"another graph's document":  {other.doc, epoch, run.ErrInvalidDocument},
		"no time":                   {good.doc, time.Time{}, claim.ErrInvalidArgument},
		"a time before the year 1":  {good.doc, time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), claim.ErrInvalidArgument},
		"a status that is no place": {&run.Document{ID: "r", Graph: good.doc.Graph, Status: run.Created}, epoch, nil},
	} {
		_, planned := m.Plan(c.doc, c.now)
		_, settled := m.Settle(c.doc, plan, results, c.now)
		_, resolved := m.Resolve(c.doc, "q", value.Null(), c.now)
		for i, err := range []error{planned, settled, resolved} {
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s, call %d: %v", name, i, err)
			}
		}
	}
	if _, _, err := run.Cancel(nil, "", epoch); !errors.Is(err, run.ErrInvalidDocument) {
		t.Error(err)
	}
	if _, _, err := run.Cancel(good.doc, "", time.Time{}); !errors.Is(err, claim.ErrInvalidArgument) {
		t.Error(err)
	}
	if _, _, err := run.Cancel(&run.Document{Status: run.Created}, "", epoch); !errors.Is(err, run.ErrInvalidDocument) {
		t.Error(err)
	}
	if m.Graph() == nil || nothing.Graph() != nil {
		t.Error("the machine does not hand out its graph")
	}
}

func TestInitChecksItsArguments(t *testing.T) {
	m := newDriver(t, two, value.Limits{Document: 4000, Value: 3000}).machine
	many := map[string]string{}
	for i := range run.MaxMetadata + 1 {
		many[fmt.Sprint(i)] = ""
	}
	for name, c := range map[string]struct {
		in   run.Initial
		now  time.Time
		want error
	}{
		"no run id":             {run.Initial{}, epoch, claim.ErrInvalidArgument},
		"an oversized run id":   {run.Initial{Run: strings.Repeat("x", claim.MaxID+1)}, epoch, claim.ErrInvalidArgument},
		"a run id not UTF-8":    {run.Initial{Run: "\xff"}, epoch, claim.ErrInvalidArgument},
		"no time":               {run.Initial{Run: "r"}, time.Time{}, claim.ErrInvalidArgument},
		"too much metadata":     {run.Initial{Run: "r", Metadata: many}, epoch, claim.ErrInvalidArgument},
		"an empty key":          {run.Initial{Run: "r", Metadata: map[string]string{"": "x"}}, epoch, claim.ErrInvalidArgument},
		"an oversized key":      {run.Initial{Run: "r", Metadata: map[string]string{strings.Repeat("k", run.MaxMetadataKey+1): "x"}}, epoch, claim.ErrInvalidArgument},
		"a key with NUL":        {run.Initial{Run: "r", Metadata: map[string]string{"\x00": "x"}}, epoch, claim.ErrInvalidArgument},
		"an oversized value":    {run.Initial{Run: "r", Metadata: map[string]string{"k": strings.Repeat("v", run.MaxMetadataValue+1)}}, epoch, claim.ErrInvalidArgument},
		"a value not UTF-8":     {run.Initial{Run: "r", Metadata: map[string]string{"k": "\xff"}}, epoch, claim.ErrInvalidArgument},
		"an oversized document": {run.Initial{Run: "r", Metadata: map[string]string{"k": strings.Repeat("v", 3600)}}, epoch, value.ErrTooLarge},
		"an oversized input":    {run.Initial{Run: "r", Input: value.Value(`{"x":"` + strings.Repeat("v", 4000) + `"}`)}, epoch, value.ErrTooLarge},
		"an undeclared input":   {run.Initial{Run: "r", Input: value.Value(`{"x":1}`)}, epoch, run.ErrInvalidInput},
	} {
		if _, err := m.Init(c.in, c.now); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	withInput := run.NewMachine(publish(t, "id: g\ninputs: {x: {schema: {}}}\nnodes: {a: {use: work, reads: {x: x}}}\nedges: {a: {from: $start, to: a}}"), value.Limits{Value: 100})
	if _, err := withInput.Init(run.Initial{Run: "r", Input: value.Value(`{"x":"` + strings.Repeat("v", 99) + `"}`)}, epoch); !errors.Is(err, value.ErrTooLarge) {
		t.Error(err)
	}
	if _, err := withInput.Init(run.Initial{Run: "r", Input: value.Value(`{"x":"` + strings.Repeat("v", 98) + `"}`)}, epoch); err != nil {
		t.Error(err)
	}
}

func TestEveryProblemOfAnInputIsTold(t *testing.T) {
	m := run.NewMachine(publish(t, `
id: g
inputs: {a: {schema: {type: string}, required: true}, b: {schema: {type: object, properties: {n: {type: integer}}}}}
fields: {c: {schema: {}}}
nodes: {x: {use: work, reads: {a: a, b: b}, writes: {c: c}}}
edges: {a: {from: $start, to: x}}
`), value.Limits{})
	_, err := m.Init(run.Initial{Run: "r", Input: value.Value(`{"b":{"n":"1"},"c":1,"d/e":2}`)}, epoch)
	var bad *run.InputError
	if !errors.As(err, &bad) {
		t.Fatal(err)
	}
	var paths []string
	for _, p := range bad.Problems {
		paths = append(paths, p.Path)
		if p.Reason == "" {
			t.Errorf("%s without a reason", p.Path)
		}
	}
	if diff := cmp.Diff([]string{"/a", "/b/n", "/c", "/d~1e"}, paths); diff != "" {
		t.Error(diff)
	}
}

// The input is made canonical, and the host's map of metadata is not kept.
func TestInitKeepsNothingOfItsArguments(t *testing.T) {
	m := run.NewMachine(publish(t, "id: g\ninputs: {x: {schema: {}}}\nnodes: {a: {use: work, reads: {x: x}}}\nedges: {a: {from: $start, to: a}}"), value.Limits{})
	metadata := map[string]string{"k": "v"}
	input := value.Value(` { "x" : { "b" : 1.50 , "a" : "é" } } `)
	p, err := m.Init(run.Initial{Run: "r", Input: input, Metadata: metadata, StartAt: epoch.Add(-time.Hour)}, epoch.Add(999).In(time.FixedZone("x", 3600)))
	if err != nil {
		t.Fatal(err)
	}
	metadata["k"] = "changed"
	for i := range input {
		input[i] = '!'
	}
	checkProposal(t, nil, p)
	if string(p.Document.Value("x")) != `{"a":"é","b":1.50}` || p.Document.Metadata["k"] != "v" || p.Document.StartedAt != epoch {
		t.Errorf("%+v", p.Document)
	}
	if p.Document.Value("nobody") != nil {
		t.Error("a value of no name")
	}
}

func TestRequiredInputMayBeLeftOutOnlyWithADefault(t *testing.T) {
	m := newDriver(t, two, value.Limits{}).machine
	for _, in := range []value.Value{nil, {}, value.Value(`{}`)} {
		if _, err := m.Init(run.Initial{Run: "r", Input: in}, epoch); err != nil {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestSettleTakesOnlyItsOwnPlan(t *testing.T) {
	d := newDriver(t, two, value.Limits{})
	plan := d.plan()
	both := []run.Result{run.Completed("ask", nil), run.Completed("other", nil)}
	change := func(f func(*run.Plan)) run.Plan {
		p := plan
		p.Execute = append([]run.Activation(nil), plan.Execute...)
		f(&p)
		return p
	}
	for name, c := range map[string]struct {
		plan    run.Plan
		results []run.Result
		node    string
	}{
		"no results":         {plan, nil, "ask"},
		"one is missing":     {plan, both[1:], "ask"},
		"the last missing":   {plan, both[:1], "other"},
		"one twice":          {plan, []run.Result{both[0], both[1], both[1]}, "other"},
		"one unknown":        {plan, append([]run.Result{run.Completed("nobody", nil)}, both...), "nobody"},
		"the zero result":    {plan, []run.Result{both[0], {Node: "other"}}, "other"},
		"no plan":            {run.Plan{}, both, ""},
		"a plan by hand":     {run.Plan{Execute: plan.Execute}, both, ""},
		"a part of the plan": {change(func(p *run.Plan) { p.Execute = p.Execute[:1] }), both[:1], ""},
		"no node":            {change(func(p *run.Plan) { p.Execute[0].Node = nil }), both, ""},
		"out of order":       {change(func(p *run.Plan) { p.Execute[0], p.Execute[1] = p.Execute[1], p.Execute[0] }), both, "ask"},
		"another task":       {change(func(p *run.Plan) { p.Execute[0].Task = "x:1:ask" }), both, "ask"},
		"another attempt":    {change(func(p *run.Plan) { p.Execute[0].Attempt = 2 }), both, "ask"},
	} {
		_, err := d.machine.Settle(d.doc, c.plan, c.results, d.now)
		var bad *run.ResultsError
		if !errors.As(err, &bad) || !errors.Is(err, run.ErrInvalidResults) || bad.Node != c.node {
			t.Errorf("%s: %v", name, err)
		}
	}
	asking := newDriver(t, `
id: g
nodes: {a: {use: work}, b: {use: work}}
edges: {a: {from: $start, to: a}, b: {from: $start, to: b}, c: {from: b, to: b}}
`, value.Limits{})
	first := asking.plan().Execute[0]
	asking.commit(asking.settle(run.Ask("a", run.Question{}), run.Completed("b", nil)))
	forced := asking.plan()
	forced.Execute = []run.Activation{{Node: first.Node, Task: "r:2:a", Attempt: 1}}
	if _, err := d.machine.Settle(d.doc, forced, []run.Result{run.Completed("a", nil)}, d.now); !errors.Is(err, run.ErrInvalidResults) {
		t.Errorf("another document's plan: %v", err)
	}
	if _, err := asking.machine.Settle(asking.doc, forced, []run.Result{run.Completed("a", nil)}, asking.now); !errors.Is(err, run.ErrInvalidResults) {
		t.Errorf("a node that waits for an answer was settled: %v", err)
	}
	// The results are the caller's, and stay in their order.
	backward := []run.Result{both[1], both[0]}
	if _, err := d.machine.Settle(d.doc, plan, backward, d.now); err != nil || backward[0].Node != "other" {
		t.Errorf("%v, %v", err, backward)
	}
}

func TestResultsTellWhatTheyAre(t *testing.T) {
	until := epoch.Add(time.Hour)
	update := map[string]value.Value{"a": value.Null()}
	failure := run.Failure{Code: "c", Message: "m"}
	question := run.Question{ID: "q", Field: "f"}
	for want, r := range map[string]run.Result{
		"none":      {},
		"completed": run.Completed("n", update),
		"skipped":   run.Skip("n", "why"),
		"snoozed":   run.Snooze("n", until),
		"asked":     run.Ask("n", question),
		"retry":     run.Retry("n", failure, until),
		"permanent": run.Permanent("n", failure),
	} {
		if r.Kind().String() != want || r.Node != map[bool]string{true: "n"}[want != "none"] {
			t.Errorf("%s is %s", want, r.Kind())
		}
		f, failed := r.Failure()
		if failed != (want == "retry" || want == "permanent") || failed && !cmp.Equal(f, failure) {
			t.Errorf("%s: %+v, %v", want, f, failed)
		}
		if (r.Update() != nil) != (want == "completed") || (r.Reason() == "why") != (want == "skipped") || (r.Question().ID == "q") != (want == "asked") || r.Until().Equal(until) != (want == "snoozed" || want == "retry") {
			t.Errorf("%s: %+v", want, r)
		}
	}
}

func TestProgressColoursADrawing(t *testing.T) {
	d := newDriver(t, `
id: g
nodes: {a: {use: work}, b: {use: work}, c: {use: work}, d: {use: work}, e: {use: work}}
edges: {a: {from: $start, to: a}, b: {from: a, to: b}, c: {from: a, to: c}, d: {from: a, to: d}, e: {from: a, to: e}, z: {from: d, to: a}}
`, value.Limits{})
	d.commit(d.settle(run.Completed("a", nil)))
	if diff := cmp.Diff(map[string]graph.Activity{"a": graph.Done, "b": graph.Active, "c": graph.Active, "d": graph.Active, "e": graph.Active}, d.doc.Progress().Nodes); diff != "" {
		t.Error(diff)
	}
	d.commit(d.settle(run.Ask("b", run.Question{ID: "q"}), run.Snooze("c", d.now.Add(1)), run.Completed("d", nil), run.Skip("e", "")))
	p := d.doc.Progress()
	if diff := cmp.Diff(map[string]graph.Activity{"a": graph.Done, "b": graph.Asking, "c": graph.Parked, "d": graph.Done, "e": graph.Done}, p.Nodes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}, p.Edges); diff != "" {
		t.Error(diff)
	}
	d.commit(d.settle(run.Permanent("c", run.Failure{Message: "x"})))
	if got := d.doc.Progress().Nodes["c"]; got != graph.Broken {
		t.Error(got)
	}
}

func TestNeedsAnswer(t *testing.T) {
	asked := func(deadline time.Time, other run.Result) *run.Document {
		d := newDriver(t, two, value.Limits{})
		d.commit(d.settle(run.Ask("ask", run.Question{ID: "q", Deadline: deadline}), other))
		return d.doc
	}
	for name, c := range map[string]struct {
		doc  *run.Document
		want bool
	}{
		"waiting":                  {asked(time.Time{}, run.Completed("other", nil)), true},
		"running, with a deadline": {asked(epoch.Add(time.Hour), run.Completed("other", nil)), true},
		"a sibling is parked":      {asked(time.Time{}, run.Snooze("other", epoch.Add(time.Hour))), false},
		"just started":             {newDriver(t, two, value.Limits{}).doc, false},
	} {
		if got := c.doc.NeedsAnswer(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	done := newDriver(t, two, value.Limits{})
	done.commit(done.settle(run.Completed("ask", nil), run.Completed("other", nil)))
	if done.doc.NeedsAnswer() {
		t.Error("a finished run needs an answer")
	}
	if _, ok := done.doc.Interrupt("q"); ok {
		t.Error("an interrupt that was never asked")
	}
}

// An interrupt's default is checked when it is asked, and the field may change before it
// is used: then the deadline fails the run, rather than nothing.
func TestADefaultThatNoLongerFitsFailsTheRun(t *testing.T) {
	d := newDriver(t, `
id: g
fields: {n: {schema: {type: integer, maximum: 10}, reducer: sum}}
nodes: {a: {use: work, writes: {n: n}}, b: {use: work, writes: {n: n}}}
edges: {a: {from: $start, to: a}, b: {from: $start, to: b}}
`, value.Limits{})
	d.commit(d.settle(run.Ask("a", run.Question{ID: "q", Field: "n", Deadline: d.now.Add(time.Minute), Default: value.Value("6")}), run.Completed("b", map[string]value.Value{"n": value.Value("5")})))
	if _, err := d.machine.Resolve(d.doc, "q", value.Value("6"), d.now); !errors.Is(err, run.ErrInvalidAnswer) {
		t.Fatal(err)
	}
	d.now = d.now.Add(time.Minute)
	d.commit(*d.plan().Commit)
	if f := d.doc.Failure; f == nil || f.Code != run.CodeInvalidUpdate || f.Node != "a" {
		t.Fatalf("%+v", f)
	}
}

// A default without a deadline could never answer, and the run would wait for ever.
func TestADefaultNeedsADeadline(t *testing.T) {
	d := newDriver(t, two, value.Limits{})
	d.commit(d.settle(run.Ask("ask", run.Question{ID: "q", Field: "ok", Default: value.Value(`true`)}), run.Completed("other", nil)))
	if f := d.doc.Failure; f == nil || f.Code != run.CodeInvalidAsk || f.Node != "ask" {
		t.Fatalf("%+v", f)
	}
}

// A question's schema may use the graph's shared schemas, when it is asked and when it
// is answered.
func TestAQuestionMayUseTheGraphsSchemas(t *testing.T) {
	d := newDriver(t, `
id: g
$defs: {name: {type: string, minLength: 2}}
nodes: {a: {use: work}}
edges: {a: {from: $start, to: a}}
`, value.Limits{})
	d.commit(d.settle(run.Ask("a", run.Question{ID: "q", Schema: value.Value(`{"$ref":"#/$defs/name"}`)})))
	if _, err := d.machine.Resolve(d.doc, "q", value.Value(`"x"`), d.now); !errors.Is(err, run.ErrInvalidAnswer) {
		t.Fatal(err)
	}
	d.resolve("q", ` "xy" `)
	if i, _ := d.doc.Interrupt("q"); string(i.Answer) != `"xy"` {
		t.Fatalf("%s", i.Answer)
	}
}

func TestAnAnswerIsAStateValue(t *testing.T) {
	d := newDriver(t, two, value.Limits{})
	d.commit(d.settle(run.Ask("ask", run.Question{ID: "q"}), run.Completed("other", nil)))
	for _, bad := range []value.Value{nil, value.Value(`{"$x":1}`), value.Value(`{`), value.Value("\"\xff\"")} {
		if _, err := d.machine.Resolve(d.doc, "q", bad, d.now); !errors.Is(err, run.ErrInvalidAnswer) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	d.resolve("q", ` { "b" : 1 , "a" : [ ] } `)
	if i, _ := d.doc.Interrupt("q"); string(i.Answer) != `{"a":[],"b":1}` {
		t.Errorf("%s", i.Answer)
	}
}

// A snooze after a failure still tells what the failure was.
func TestASnoozeKeepsTheLastError(t *testing.T) {
	d := newDriver(t, two, value.Limits{})
	d.commit(d.settle(run.Completed("ask", nil), run.Retry("other", run.Failure{Message: "the first"}, time.Time{})))
	d.now = d.now.Add(time.Hour)
	d.commit(d.settle(run.Snooze("other", d.now.Add(time.Hour))))
	if task := d.doc.Tasks[0]; task.LastError != "the first" || task.Failures != 1 || task.Reason != run.ParkSnooze {
		t.Errorf("%+v", task)
	}
}

// What a damaged or foreign document could make of a plan is an error, not a panic.
func TestDocumentsOfAnotherShapeAreRefused(t *testing.T) {
	d := newDriver(t, two, value.Limits{})
	parked := newDriver(t, two, value.Limits{})
	parked.commit(parked.settle(run.Completed("ask", nil), run.Snooze("other", epoch)))
	asking := newDriver(t, two, value.Limits{})
	asking.commit(asking.settle(run.Ask("ask", run.Question{ID: "q", Field: "ok"}), run.Completed("other", nil)))
	for name, c := range map[string]struct {
		doc    run.Document
		change func(*run.Document)
	}{
		"pending node":   {*d.doc, func(d *run.Document) { d.Pending = []string{"gone"} }},
		"parked node":    {*parked.doc, func(d *run.Document) { d.Tasks = []run.Task{{ID: d.Tasks[0].ID, Node: "gone"}} }},
		"running, asks":  {*asking.doc, func(d *run.Document) { d.Status = run.Running }},
		"unknown status": {*d.doc, func(d *run.Document) { d.Status = "odd" }},
	} {
		c.change(&c.doc)
		if plan, err := d.machine.Plan(&c.doc, epoch); !errors.Is(err, run.ErrInvalidDocument) {
			t.Errorf("%s: %+v, %v", name, plan, err)
		}
	}
	gone := *asking.doc
	gone.Interrupts = []run.Interrupt{gone.Interrupts[0]}
	gone.Interrupts[0].Field = "gone"
	if _, err := d.machine.Resolve(&gone, "q", value.Value("true"), epoch); !errors.Is(err, run.ErrInvalidAnswer) {
		t.Error(err)
	}
	held := *parked.doc
	held.Writes = []run.Write{{Node: "ask", Update: []run.Channel{{Name: "gone", Value: value.Null()}}}}
	plan, err := d.machine.Plan(&held, epoch)
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.machine.Settle(&held, plan, []run.Result{run.Completed("other", nil)}, epoch)
	if err != nil || p.Document.Status != run.Failed {
		t.Errorf("%+v, %v", p.Document, err)
	}
}
