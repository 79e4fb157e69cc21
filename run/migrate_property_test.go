package run_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// migrate moves the run to a version of its graph in which names are drawn anew, and at
// times back again.
func (w *world) migrate() {
	version, mapping := evolve(w.T, w.version)
	next := w.compile(version)
	if next.Graph().Ref() == w.machine.Graph().Ref() {
		if _, changed, err := next.Migrate(w.doc, run.Migration{From: next.Graph()}, w.now); changed || err != nil && !w.doc.Status.Terminal() {
			w.Fatalf("a migration to the version that the run has: %v, %v", changed, err)
		}
		return
	}
	from, before := w.doc, w.encoded()
	to := run.Migration{From: w.machine.Graph(), Mapping: mapping}
	p, changed, err := next.Migrate(w.doc, to, w.now)
	if !bytes.Equal(before, w.encoded()) || !roomUntouched(w.doc) {
		w.Fatalf("the committed document was altered")
	}
	if w.refusal(err) {
		return
	}
	if !changed || p.Type != checkpoint.GraphMigrated || p.Document.Status != from.Status || p.Document.Step != from.Step {
		w.Fatalf("migrated: %v, %s from %s in step %d to %s in step %d", changed, p.Type, from.Status, from.Step, p.Document.Status, p.Document.Step)
	}
	again, _, err := next.Migrate(w.reread(), to, w.now)
	if err != nil || bytesOf(w.T, p) != bytesOf(w.T, again) {
		w.Fatalf("M1: migrated twice: %v", err)
	}
	w.keepsWork(next, p.Document, mapping)
	old, oldVersion, back := w.machine, w.version, inverse(w.version, version, mapping)
	w.machine, w.version = next, version
	w.history.rename(mapping)
	w.commit(p)
	if rapid.Bool().Draw(w.T, "back again") {
		w.migrateBack(from, old, oldVersion, back)
	}
}

// refusal reports whether a migration that loses nothing was refused, which only an end
// that is near or a limit may do.
func (w *world) refusal(err error) bool {
	if err == nil {
		return false
	}
	var refused *run.MigrationError
	switch {
	case w.doc.Status.Terminal():
		if !errors.Is(err, run.ErrInactiveRun) {
			w.Fatalf("migrating a run that is %s: %v", w.doc.Status, err)
		}
		return true
	case !errors.As(err, &refused) || len(refused.Problems) != 1:
		w.Fatal(err)
	}
	switch refused.Problems[0].Kind {
	case run.MigrateNothingLeft:
		if len(w.doc.Pending)+len(w.doc.Tasks) > 0 {
			w.Fatal(err)
		}
	case run.MigrateSupersteps:
		if w.doc.Step <= w.version.Policies.MaxSupersteps {
			w.Fatal(err)
		}
	case run.MigrateTooLarge:
		if w.limits == (value.Limits{}).WithDefaults() {
			w.Fatal(err)
		}
	default:
		w.Fatal(err)
	}
	return true
}

// migrateBack takes a migration back: what it cannot have changed is as before.
func (w *world) migrateBack(from *run.Document, old *run.Machine, version *graph.Document, m run.Mapping) {
	p, changed, err := old.Migrate(w.doc, run.Migration{From: w.machine.Graph(), Mapping: m}, w.now)
	if w.refusal(err) {
		return
	}
	if !changed || len(p.Document.Lineage) != len(from.Lineage)+2 {
		w.Fatalf("migrated back: %v, with the lineage %v after %v", changed, p.Document.Lineage, from.Lineage)
	}
	w.machine, w.version = old, version
	w.history.rename(m)
	w.commit(p)
	was, is := *from, *w.doc
	is.Lineage, is.Seq, is.EventSeq, is.UpdatedAt = was.Lineage, was.Seq, was.EventSeq, was.UpdatedAt
	if diff := cmp.Diff(&was, &is); diff != "" {
		w.Fatalf("there and back is not where it began (-before +after):\n%s", diff)
	}
}

// keepsWork: what was to be done is still to be done, under the same keys.
func (w *world) keepsWork(next *run.Machine, d *run.Document, m run.Mapping) {
	tasks := map[string]run.Task{}
	for _, t := range d.Tasks {
		tasks[t.ID] = t
	}
	for _, t := range w.doc.Tasks {
		t.Node = renamed(m.Nodes, t.Node)
		if diff := cmp.Diff(t, tasks[t.ID]); diff != "" {
			w.Fatalf("the task %s changed (-before +after):\n%s", t.ID, diff)
		}
	}
	if diff := cmp.Diff(w.doc.Timers, d.Timers); diff != "" || len(d.Tasks) != len(w.doc.Tasks) || len(d.Pending) != len(w.doc.Pending) {
		w.Fatalf("timers, tasks or pending nodes changed:\n%s", diff)
	}
	before, err := w.machine.Plan(w.doc, w.now)
	if err != nil {
		w.Fatal(err)
	}
	after, err := next.Plan(d, w.now)
	if err != nil {
		w.Fatal(err)
	}
	keys := func(p run.Plan) (keys []string) {
		for _, a := range p.Execute {
			keys = append(keys, fmt.Sprintf("%s %d %s", a.AttemptID, a.Attempt, a.InputHash()))
		}
		slices.Sort(keys)
		return keys
	}
	if diff := cmp.Diff(keys(before), keys(after)); diff != "" {
		w.Fatalf("the plan has other keys or inputs (-before +after):\n%s", diff)
	}
}

func (w *world) compile(version *graph.Document) *run.Machine {
	g, err := graph.Publish(version, testCatalog())
	if err != nil {
		w.Fatalf("the version is not valid: %v", err)
	}
	return run.NewMachine(g, w.limits)
}

// taskName is what a node's task is named after in this superstep.
func (w *world) taskName(node string) string {
	for _, r := range w.doc.Renamed {
		if r.Node == node {
			return r.Was
		}
	}
	return node
}

// evolve draws a version of a graph that has the same shape under other names, at times
// with a field and an input more, and how its names come from the old ones.
func evolve(t *rapid.T, d *graph.Document) (*graph.Document, run.Mapping) {
	m := run.Mapping{
		Nodes: drawNames(t, "node", slices.Sorted(maps.Keys(d.Nodes)), []string{"m", "n", "p", "q"}),
		Edges: drawNames(t, "edge", slices.Sorted(maps.Keys(d.Edges)), []string{"f1", "f2", "f3"}),
	}
	states := statesOf(d)
	m.Fields = drawNames(t, "state", states, []string{"one", "two", "three"})
	v := &graph.Document{
		ID: d.ID, Inputs: map[string]graph.Input{}, Fields: map[string]graph.Field{}, Nodes: map[string]graph.Node{},
		Edges: map[string]graph.Edge{}, Outputs: map[string]graph.Output{}, Policies: d.Policies,
	}
	for name, in := range d.Inputs {
		v.Inputs[renamed(m.Fields, name)] = in
	}
	for name, f := range d.Fields {
		v.Fields[renamed(m.Fields, name)] = f
	}
	if rapid.Bool().Draw(t, "more state") {
		name := func(name string) string {
			for v.Inputs[name].Schema != nil || v.Fields[name].Schema != nil {
				name = "x" + name // no guard takes the one for the other
			}
			return name
		}
		v.Inputs[name("given")] = graph.Input{Schema: value.Value(`{"type":"integer"}`), Default: value.Value(`7`)}
		v.Fields[name("fresh")] = graph.Field{Schema: value.Value(`{"type":"string"}`), Default: value.Value(`""`)}
	}
	for id, n := range d.Nodes {
		n.Reads, n.Writes = bind(n.Reads, m.Fields), bind(n.Writes, m.Fields)
		v.Nodes[renamed(m.Nodes, id)] = n
	}
	for id, e := range d.Edges {
		to := graph.Edge{To: renamed(m.Nodes, e.To), When: renameGuard(e.When, states, m.Fields)}
		for _, from := range e.From {
			to.From = append(to.From, renamed(m.Nodes, from))
		}
		v.Edges[renamed(m.Edges, id)] = to
	}
	for name, o := range d.Outputs {
		v.Outputs[name] = graph.Output{From: renamed(m.Fields, o.From)}
	}
	if rapid.Bool().Draw(t, "another output") {
		v.Outputs["again"] = v.Outputs["sum"]
	} else {
		delete(v.Outputs, "again")
	}
	return v, m
}

func statesOf(d *graph.Document) []string {
	return slices.Concat(slices.Sorted(maps.Keys(d.Inputs)), slices.Sorted(maps.Keys(d.Fields)))
}

// drawNames draws another name for some of the old ones, a name of each other too.
func drawNames(t *rapid.T, kind string, old, fresh []string) map[string]string {
	if rapid.Bool().Draw(t, kind+"s keep their names") {
		return nil
	}
	next := rapid.Permutation(slices.Concat(old, slices.DeleteFunc(slices.Clone(fresh), func(n string) bool { return slices.Contains(old, n) }))).Draw(t, kind+" names")
	m := map[string]string{}
	for i, name := range old {
		if next[i] != name {
			m[name] = next[i]
		}
	}
	return m
}

func renamed(m map[string]string, name string) string {
	if to, ok := m[name]; ok {
		return to
	}
	return name
}

func bind(b, m map[string]string) map[string]string {
	out := map[string]string{}
	for own, state := range b {
		out[own] = renamed(m, state)
	}
	return out
}

func renameGuard(guard string, states []string, m map[string]string) string {
	var pairs []string
	for _, s := range states {
		to := renamed(m, s)
		pairs = append(pairs, "state."+s, "state."+to, `("`+s+`")`, `("`+to+`")`)
	}
	return strings.NewReplacer(pairs...).Replace(guard)
}

// inverse takes back a mapping: what the version added is dropped.
func inverse(old, version *graph.Document, m run.Mapping) run.Mapping {
	turn := func(m map[string]string) map[string]string {
		out := map[string]string{}
		for from, to := range m {
			out[to] = from
		}
		return out
	}
	back := run.Mapping{Nodes: turn(m.Nodes), Fields: turn(m.Fields), Edges: turn(m.Edges)}
	came := map[string]bool{}
	for _, name := range statesOf(old) {
		came[renamed(m.Fields, name)] = true
	}
	for _, name := range statesOf(version) {
		if !came[name] {
			back.Drop.Fields = append(back.Drop.Fields, name)
		}
	}
	return back
}

// rename is what a graph_migrated event tells a reader of the events.
func (h *history) rename(m run.Mapping) {
	turn := func(counts map[string]int64, m map[string]string) map[string]int64 {
		out := map[string]int64{}
		for name, n := range counts {
			out[renamed(m, name)] = n
		}
		return out
	}
	h.Versions, h.Edges, h.Completed = turn(h.Versions, m.Fields), turn(h.Edges, m.Edges), turn(h.Completed, m.Nodes)
}
