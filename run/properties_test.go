package run_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// TestMachineInvariants drives runs of random graphs with random results, signals and
// instants, and checks after every step:
//
//	M1  the same document, results and now give the same proposal, byte for byte
//	M2  a superstep plans again with the same tasks, keys and snapshots
//	M3  no activation sees a write of its own superstep
//	M4  the order in which results arrive does not matter
//	M5  what has completed is not executed again
//	M6  every proposal may be stored, and its move is in the table
//	M7  every plan leads on
//	M8  every document survives its encoding
//
// with migrations to other versions of the graph among the steps,
// and that nothing which was committed is altered, and that the events alone tell the
// versions, counts and interrupts that the document has.
// The same holds under tight limits, and then no proposal is over one of them.
func TestMachineInvariants(t *testing.T) {
	for name, limits := range map[string]value.Limits{
		"roomy": {},
		"tight": {Document: 2 << 10, EventPayload: 600, Value: 64},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				version := drawGraph(rt)
				g, err := graph.Publish(version, testCatalog())
				if err != nil {
					rt.Fatalf("the generated graph is not valid: %v", err)
				}
				w := &world{
					T: rt, version: version, machine: run.NewMachine(g, limits), limits: limits.WithDefaults(), now: epoch,
					history: newHistory(), done: map[string]bool{}, first: map[string][]run.Channel{},
				}
				w.start()
				for range rapid.IntRange(10, 60).Draw(rt, "steps") {
					w.step()
				}
			})
		})
	}
}

// drawGraph draws a valid graph of up to five nodes, with cycles, barriers and guards.
func drawGraph(t *rapid.T) *graph.Document {
	doc := &graph.Document{
		ID: "g",
		Inputs: map[string]graph.Input{
			"seed":  {Schema: value.Value(`{"type":"integer"}`), Required: true},
			"extra": {Schema: value.Value(`{}`), Default: value.Value(`null`)},
		},
		Fields: map[string]graph.Field{
			"last":  {Schema: value.Value(`{"type":"string","maxLength":8}`)},
			"first": {Schema: value.Value(`{}`), Reducer: graph.Reducer{Name: "first"}},
			"log":   {Schema: value.Value(`{"type":"array","maxItems":12}`), Reducer: graph.Reducer{Name: "append"}},
			"sum":   {Schema: value.Value(`{"type":"integer"}`), Default: value.Value(`0`), Reducer: graph.Reducer{Name: "sum"}},
			"all":   {Schema: value.Value(`{"type":"object"}`), Reducer: graph.Reducer{Name: "merge"}},
		},
		Nodes:    map[string]graph.Node{},
		Edges:    map[string]graph.Edge{},
		Outputs:  map[string]graph.Output{"sum": {From: "sum"}, "last": {From: "last"}},
		Policies: graph.Policies{MaxSupersteps: rapid.Int64Range(0, 12).Draw(t, "max supersteps")},
	}
	count := rapid.IntRange(1, 5).Draw(t, "nodes")
	ids := []string{"a", "b", "c", "d", "e"}[:count]
	for _, id := range ids {
		n := graph.Node{Use: "work", Reads: bound("seed", "extra", "last", "log", "sum"), Writes: bound("last", "first", "log", "sum", "all")}
		if rapid.Bool().Draw(t, "retries") {
			n.Retry = &graph.Retry{
				MaxAttempts: rapid.IntRange(1, 3).Draw(t, "attempts"),
				Backoff:     graph.Backoff{Initial: graph.Duration(time.Second), Factor: 1500, Cap: graph.Duration(3 * time.Second)},
			}
		}
		doc.Nodes[id] = n
	}
	guards := []string{"", "", "", `changed("sum")`, `state.sum < 3`, `state.last != nil`, `version("log") > 1`, `state.last == "x"`, `state.seed > 1`, `len(state.log) > 0`}
	edge := func(from graph.Sources, to string) {
		id := fmt.Sprintf("e%02d", len(doc.Edges))
		doc.Edges[id] = graph.Edge{From: from, To: to, When: rapid.SampledFrom(guards).Draw(t, "guard")}
	}
	for i, id := range ids {
		from := graph.Start
		if i > 0 && rapid.Bool().Draw(t, "from a node") {
			from = ids[rapid.IntRange(0, i-1).Draw(t, "from")]
		}
		edge(graph.Sources{from}, id)
	}
	for range rapid.IntRange(0, 4).Draw(t, "more edges") {
		from := graph.Sources{rapid.SampledFrom(ids).Draw(t, "from")}
		if second := rapid.SampledFrom(ids).Draw(t, "and from"); second != from[0] && rapid.Bool().Draw(t, "barrier") {
			from = append(from, second)
		}
		edge(from, rapid.SampledFrom(append([]string{graph.Finish}, ids...)).Draw(t, "to"))
	}
	return doc
}

// bound gives state names own names that sort the other way round.
func bound(states ...string) map[string]string {
	out := map[string]string{}
	for _, s := range states {
		out[own(s)] = s
	}
	return out
}

func own(state string) string { return fmt.Sprintf("%c_%s", 'z'-state[0]+'a', state) }

// stateOf is the state name that a node reads under a name of its own.
func stateOf(n *graph.CompiledNode, own string) string {
	for _, r := range n.Reads {
		if r.Name == own {
			return r.State
		}
	}
	return ""
}

// world is one run and what is remembered of it.
type world struct {
	*rapid.T
	version *graph.Document // of the graph; migrations change it
	machine *run.Machine
	limits  value.Limits
	now     time.Time
	doc     *run.Document
	history *history
	done    map[string]bool          // tasks whose completion was committed
	first   map[string][]run.Channel // snapshots of parked tasks
}

func (w *world) start() {
	input := value.Value(fmt.Sprintf(`{"seed":%d}`, rapid.IntRange(0, 3).Draw(w.T, "seed")))
	p, err := w.machine.Init(run.Initial{Run: "r", Input: input}, w.now)
	if err != nil {
		w.Fatal(err)
	}
	w.commit(p)
}

func (w *world) step() {
	switch rapid.SampledFrom([]string{"drive", "drive", "drive", "drive", "tick", "resolve", "cancel", "migrate"}).Draw(w.T, "action") {
	case "drive":
		w.drive()
	case "tick":
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 4000).Draw(w.T, "milliseconds")) * time.Millisecond)
	case "resolve":
		w.resolve()
	case "migrate":
		w.migrate()
	case "cancel":
		if rapid.IntRange(0, 9).Draw(w.T, "really") == 0 {
			p, changed, err := run.Cancel(w.doc, "enough", w.now)
			if changed != !w.doc.Status.Terminal() || (err != nil) != (w.doc.Status.Terminal() && w.doc.Status != run.Cancelled) {
				w.Fatalf("cancelling a run that is %s: %v, %v", w.doc.Status, changed, err)
			}
			if changed {
				w.commit(p)
			}
		}
	}
}

// commit stores a proposal after looking at it from all sides.
func (w *world) commit(p run.Proposal) {
	checkProposal(w.T, w.doc, p)
	w.history.add(w.T, p)
	for _, e := range p.Events {
		if e.Type == run.EventNodeCompleted || e.Type == run.EventNodeSkipped {
			if w.done[e.Task] {
				w.Fatalf("M5: task %s completed twice", e.Task)
			}
			w.done[e.Task] = true
		}
	}
	if n := size(w.T, p.Document); n > w.limits.Document {
		w.Fatalf("a document of %d bytes", n)
	}
	for _, e := range p.Events {
		if raw, err := run.EncodeEvent(e); err != nil || len(raw) > w.limits.EventPayload {
			w.Fatalf("an event of %d bytes: %v", len(raw), err)
		}
	}
	w.doc = withRoom(p.Document)
	w.history.compare(w.T, w.doc)
}

// withRoom is the document with slices that have room to grow in place, as those of a
// decoded one may have: whoever appends to a committed slice is found out.
func withRoom(d *run.Document) *run.Document {
	c := *d
	c.Input, c.State, c.Edges, c.Barriers = room(d.Input), room(d.State), room(d.Edges), room(d.Barriers)
	c.Changed, c.Pending, c.Completed, c.Tasks = room(d.Changed), room(d.Pending), room(d.Completed), room(d.Tasks)
	c.Writes, c.Timers, c.Interrupts = room(d.Writes), room(d.Timers), room(d.Interrupts)
	c.Lineage, c.Renamed = room(d.Lineage), room(d.Renamed)
	return &c
}

func room[T any](s []T) []T {
	if s == nil {
		return nil
	}
	return append(make([]T, 0, len(s)+4), s...)
}

func roomUntouched(d *run.Document) bool {
	return untouched(d.Input) && untouched(d.State) && untouched(d.Edges) && untouched(d.Barriers) &&
		untouched(d.Changed) && untouched(d.Pending) && untouched(d.Completed) && untouched(d.Tasks) &&
		untouched(d.Writes) && untouched(d.Timers) && untouched(d.Interrupts) &&
		untouched(d.Lineage) && untouched(d.Renamed)
}

func untouched[T any](s []T) bool {
	var zero T
	for _, v := range s[len(s):cap(s)] {
		if !reflect.DeepEqual(v, zero) {
			return false
		}
	}
	return true
}

func bytesOf(t rapid.TB, p run.Proposal) string {
	t.Helper()
	raw, err := run.Encode(p.Document)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s %v %d %v\n%s\n", p.Type, p.Schedule.Kind, p.Schedule.At, p.Expected, p.Now, raw)
	for _, e := range p.Events {
		raw, err := run.EncodeEvent(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(raw, '\n'))
	}
	return b.String()
}

func (w *world) encoded() []byte {
	raw, err := run.Encode(w.doc)
	if err != nil {
		w.Fatal(err)
	}
	return raw
}

// drive does what a vehicle does: plan, execute, settle, commit.
func (w *world) drive() {
	before := w.encoded()
	plan, err := w.machine.Plan(w.doc, w.now)
	if err != nil {
		w.Fatal(err)
	}
	w.checkPlan(plan)
	switch {
	case plan.Commit != nil:
		w.commit(*plan.Commit)
		return
	case len(plan.Execute) == 0:
		return
	}
	var results []run.Result
	for _, a := range plan.Execute {
		results = append(results, w.drawResult(a))
	}
	p, err := w.machine.Settle(w.doc, plan, results, w.now)
	if err != nil {
		w.Fatal(err)
	}
	first := bytesOf(w.T, p)
	again, err := w.machine.Settle(w.reread(), plan, results, w.now)
	if err != nil {
		w.Fatal(err)
	}
	if second := bytesOf(w.T, again); first != second {
		w.Fatalf("M1: the same call proposed\n%s\nand\n%s", first, second)
	}
	shuffled, err := w.machine.Settle(w.doc, plan, rapid.Permutation(results).Draw(w.T, "arrival"), w.now)
	if err != nil {
		w.Fatal(err)
	}
	if second := bytesOf(w.T, shuffled); first != second {
		w.Fatalf("M4: another order of arrival proposed\n%s\nand\n%s", first, second)
	}
	if !bytes.Equal(before, w.encoded()) || !roomUntouched(w.doc) {
		w.Fatalf("the committed document was altered")
	}
	w.checkIsolation(p)
	w.commit(p)
}

// reread is the document as another process reads it.
func (w *world) reread() *run.Document {
	d, err := run.Decode(w.encoded())
	if err != nil {
		w.Fatal(err)
	}
	return d
}

func (w *world) checkPlan(plan run.Plan) {
	set := 0
	for _, is := range []bool{len(plan.Execute) > 0, !plan.Wake.IsZero(), plan.Waiting, plan.Commit != nil, plan.Finished} {
		if is {
			set++
		}
	}
	if set != 1 {
		w.Fatalf("M7: the plan says %d things: %+v", set, plan)
	}
	if plan.Finished != w.doc.Status.Terminal() || plan.Waiting != (w.doc.Status == run.Waiting) {
		w.Fatalf("M7: %+v for a run that is %s", plan, w.doc.Status)
	}
	if w.doc.NeedsAnswer() && len(plan.Execute) > 0 {
		w.Fatalf("nodes to execute in a run that needs an answer")
	}
	if !plan.Wake.IsZero() {
		if !plan.Wake.After(w.now) {
			w.Fatalf("M7: nothing to do, and a wake at %s that is past at %s", plan.Wake, w.now)
		}
		then, err := w.machine.Plan(w.doc, plan.Wake)
		if err != nil || len(then.Execute) == 0 && then.Commit == nil {
			w.Fatalf("M7: nothing to do at the wake either: %+v, %v", then, err)
		}
	}
	again, err := w.machine.Plan(w.reread(), w.now)
	if err != nil {
		w.Fatal(err)
	}
	if diff := cmp.Diff(told(plan), told(again)); diff != "" {
		w.Fatalf("M2: planned twice (-first +second):\n%s", diff)
	}
	for _, a := range plan.Execute {
		if w.done[a.Task] {
			w.Fatalf("M5: task %s has completed, and is planned again", a.Task)
		}
		if a.AttemptID != fmt.Sprintf("%s:%d", a.Task, a.Attempt) || a.Task != fmt.Sprintf("r:%d:%s", w.doc.Step, w.taskName(a.Node.ID)) {
			w.Fatalf("M2: attempt %d of %s is called %s and %s", a.Attempt, a.Node.ID, a.Task, a.AttemptID)
		}
		if len(w.doc.Tasks) > 0 {
			if diff := cmp.Diff(w.first[a.Task], a.Snapshot); diff != "" {
				w.Fatalf("M2: the parked task %s has another snapshot (-was +is):\n%s", a.Task, diff)
			}
			continue
		}
		w.first[a.Task] = a.Snapshot
		for _, c := range a.Snapshot {
			if committed := w.doc.Value(stateOf(a.Node, c.Name)); !value.Equal(c.Value, committed) {
				w.Fatalf("M3: %s is told that %s is %s, and committed is %s", a.Task, c.Name, c.Value, committed)
			}
		}
	}
}

// told is what of a plan must not change when it is made again at the same instant.
func told(p run.Plan) []string {
	var out []string
	for _, a := range p.Execute {
		out = append(out, fmt.Sprintf("%s %s %d %s %v %v %v", a.Task, a.AttemptID, a.Attempt, a.InputHash(), a.Snapshot, a.Answers, a.PlannedAt))
	}
	return append(out, fmt.Sprintf("%v %v %v %v", p.Wake, p.Waiting, p.Finished, p.Commit != nil))
}

// checkIsolation: what a superstep wrote is not to be seen before its barrier.
func (w *world) checkIsolation(p run.Proposal) {
	if len(p.Document.Tasks) == 0 || p.Document.Status.Terminal() {
		return
	}
	if diff := cmp.Diff(w.doc.State, p.Document.State); diff != "" {
		w.Fatalf("M3: a parked superstep changed the state:\n%s", diff)
	}
	if p.Document.Step != w.doc.Step {
		w.Fatalf("a parked superstep moved from step %d to %d", w.doc.Step, p.Document.Step)
	}
}

// drawResult draws any answer a node may give, bad ones rarely.
func (w *world) drawResult(a run.Activation) run.Result {
	node := a.Node.ID
	switch rapid.SampledFrom(weighted).Draw(w.T, "answer of "+node) {
	case "skip":
		return run.Skip(node, "not today")
	case "snooze":
		return run.Snooze(node, w.now.Add(time.Duration(rapid.IntRange(-1000, 3000).Draw(w.T, "snooze"))*time.Millisecond))
	case "retry":
		var notBefore time.Time
		if rapid.Bool().Draw(w.T, "not before") {
			notBefore = w.now.Add(time.Duration(rapid.IntRange(-1000, 5000).Draw(w.T, "patience")) * time.Millisecond)
		}
		return run.Retry(node, run.Failure{Message: rapid.SampledFrom([]string{"boom", "", "\xff\xfe", "nul \x00"}).Draw(w.T, "text")}, notBefore)
	case "ask":
		q := run.Question{Prompt: value.Value(`"?"`)}
		if rapid.IntRange(0, 3).Draw(w.T, "own id") == 0 {
			q.ID = rapid.SampledFrom([]string{"q1", "q2", "q3", "q4", "q5"}).Draw(w.T, "id")
		}
		if rapid.Bool().Draw(w.T, "written") {
			q.Field = own("first")
		}
		if rapid.Bool().Draw(w.T, "deadline") {
			q.Deadline = w.now.Add(time.Duration(rapid.IntRange(-500, 4000).Draw(w.T, "until")) * time.Millisecond)
		}
		return run.Ask(node, q)
	case "bad":
		return rapid.SampledFrom([]run.Result{
			run.Permanent(node, run.Failure{Code: "custom", Message: "no", Details: value.Value(`{"a":1}`)}),
			run.Completed(node, map[string]value.Value{"nope": value.Value(`1`)}),
			run.Completed(node, map[string]value.Value{own("last"): value.Value(`"much too long"`)}),
			run.Completed(node, map[string]value.Value{own("sum"): value.Value(`9223372036854775807`)}),
			run.Ask(node, run.Question{Field: "nope"}),
			run.Ask(node, run.Question{Schema: value.Value(`{"type":1}`)}),
			run.Skip(node, strings.Repeat("x", run.MaxText+1)),
			run.Retry(node, run.Failure{Message: strings.Repeat("x", run.MaxText+1)}, time.Time{}),
		}).Draw(w.T, "bad answer")
	}
	update := map[string]value.Value{}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"all", "first", "last", "log", "sum"}), 0, 3, rapid.ID).Draw(w.T, "written by "+node) {
		switch name {
		case "last", "first":
			update[own(name)] = value.Value(rapid.SampledFrom([]string{`"x"`, `"y"`}).Draw(w.T, name))
		case "log":
			update[own(name)] = value.Value(fmt.Sprintf(`[%q]`, node))
		case "sum":
			update[own(name)] = value.Value(fmt.Sprint(rapid.IntRange(-1, 3).Draw(w.T, "summand")))
		case "all":
			update[own(name)] = value.Value(fmt.Sprintf(`{%q:true}`, node))
		}
	}
	return run.Completed(node, update)
}

var weighted = slices.Concat(
	slices.Repeat([]string{"done"}, 12), slices.Repeat([]string{"skip"}, 2), slices.Repeat([]string{"snooze"}, 3),
	slices.Repeat([]string{"retry"}, 3), slices.Repeat([]string{"ask"}, 4), []string{"bad"},
)

func (w *world) resolve() {
	open := w.doc.OpenInterrupts()
	if len(open) == 0 {
		return
	}
	q := rapid.SampledFrom(open).Draw(w.T, "interrupt")
	before := w.encoded()
	p, err := w.machine.Resolve(w.doc, q.ID, value.Value(`"x"`), w.now)
	if errors.Is(err, value.ErrTooLarge) {
		return
	}
	if err != nil {
		w.Fatal(err)
	}
	if !bytes.Equal(before, w.encoded()) || !roomUntouched(w.doc) {
		w.Fatalf("the committed document was altered")
	}
	if again, err := w.machine.Resolve(w.reread(), q.ID, value.Value(`"x"`), w.now); err != nil || bytesOf(w.T, p) != bytesOf(w.T, again) {
		w.Fatalf("M1: resolved twice: %v", err)
	}
	w.commit(p)
}
