package run_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// shop is a graph with something of everything: an input, fields, a barrier, a node that asks.
const shop = `
id: shop
$defs: {yes: {type: boolean}}
inputs: {order: {schema: {type: integer}, required: true}}
fields:
  total: {schema: {type: integer}}
  ok: {schema: {type: boolean}}
nodes:
  ask: {use: work, reads: {order: order}, writes: {ok: ok}}
  charge: {use: work, reads: {order: order}, writes: {total: total}, retry: {max_attempts: 5, backoff: {initial: 10s}}}
  quick: {use: work, reads: {}, writes: {total: total}}
  ship: {use: work, reads: {total: total}, writes: {}}
edges:
  a: {from: $start, to: ask}
  b: {from: $start, to: charge}
  c: {from: $start, to: quick}
  d: {from: [ask, charge, quick], to: ship}
`

// busy is a run of shop in which charge is parked, quick has a pending write, ask asks.
func busy(t *testing.T) *driver {
	t.Helper()
	d := &driver{t: t, machine: shopMachine(t, shop), now: epoch}
	p, err := d.machine.Init(run.Initial{Run: "r", Input: value.Value(`{"order":7}`)}, epoch)
	if err != nil {
		t.Fatal(err)
	}
	d.commit(p)
	d.commit(d.settle(
		run.Ask("ask", run.Question{ID: "q", Field: "ok", Schema: value.Value(`{"$ref":"#/$defs/yes"}`), Deadline: epoch.Add(time.Hour), Default: value.Value(`false`)}),
		run.Retry("charge", run.Failure{Message: "later"}, time.Time{}),
		run.Completed("quick", map[string]value.Value{"total": value.Value(`3`)}),
	))
	return d
}

func shopMachine(t *testing.T, yaml string) *run.Machine {
	t.Helper()
	doc, err := graph.ParseYAML([]byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	g, err := graph.Publish(doc, &graph.Manifest{Format: 1, Nodes: []graph.NodeType{
		{Name: "play", Version: 1, OpenReads: true, OpenWrites: true}, {Name: "work", Version: 1, OpenReads: true, OpenWrites: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return run.NewMachine(g, value.Limits{})
}

func TestMigrationIsRefusedWithEveryReason(t *testing.T) {
	edit := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(shop) }
	for _, tt := range []struct {
		name string
		to   string
		m    run.Mapping
		want []string // kind and path
	}{
		{"another graph", edit("id: shop", "id: mall"), run.Mapping{}, []string{"other_graph /graph"}},
		{
			"work in hand without a node",
			edit("charge", "bill", "quick", "swift", "ask", "beg"),
			run.Mapping{},
			[]string{"no_counterpart /interrupts/q", "no_counterpart /pending/ask", "no_counterpart /tasks/charge", "no_counterpart /writes/quick"},
		},
		{
			"work in hand cannot be dropped",
			edit("charge", "bill"),
			run.Mapping{Drop: run.Dropped{Nodes: []string{"charge"}}},
			[]string{"no_counterpart /tasks/charge"},
		},
		{"a field that is asked for and written", edit("total", "sum", "ok", "yes"), run.Mapping{}, []string{"no_counterpart /interrupts/q/field", "no_counterpart /writes/quick/update/total"}},
		{"an edge that fired", edit("  b: {from", "  z: {from"), run.Mapping{}, []string{"no_counterpart /edges/b"}},
		{"an input that was given", edit("order: {schema", "purchase: {schema", "order: order", "order: purchase"), run.Mapping{}, []string{"missing_input /input/purchase", "no_counterpart /input/order"}},
		{
			"values that do not fit",
			edit("inputs: {order: {schema: {type: integer}", "inputs: {order: {schema: {type: string}", "total: {schema: {type: integer}}", "total: {schema: {type: string}}", "ok: {schema: {type: boolean}}", "ok: {schema: {type: integer}}"),
			run.Mapping{},
			[]string{"unfit_value /input/order", "unfit_value /interrupts/q/default", "unfit_value /tasks/charge/snapshot/order", "unfit_value /writes/quick/update/total"},
		},
		{"a question's shared schema is gone", edit("$defs: {yes: {type: boolean}}", "$defs: {no: {type: boolean}}"), run.Mapping{}, []string{"unfit_value /interrupts/q/schema"}},
		{
			"a node in hand of another type",
			edit("ask: {use: work", "ask: {use: play", "charge: {use: work", "charge: {use: play"),
			run.Mapping{},
			[]string{"different /interrupts/q", "different /tasks/charge"},
		},
		{"a parked node that reads otherwise", edit("charge: {use: work, reads: {order: order}", "charge: {use: work, reads: {purchase: order}"), run.Mapping{}, []string{"different /tasks/charge"}},
		{
			"a field for an input",
			edit("inputs: {order: {schema: {type: integer}, required: true}}\nfields:\n", "fields:\n  order: {schema: {type: integer}}\n"),
			run.Mapping{},
			[]string{"different /input/order"},
		},
		{"too few supersteps", shop + "policies: {max_supersteps: 1}\n", run.Mapping{}, nil},
		{
			"a mapping of names that are not there", shop + "outputs: {total: {from: total}}\n",
			run.Mapping{Nodes: map[string]string{"x": "ask", "charge": "y"}, Fields: map[string]string{"x": "total"}, Drop: run.Dropped{Edges: []string{"x"}}},
			[]string{
				"unknown_name /mapping/drop/edges/x", "unknown_name /mapping/fields/x", "unknown_name /mapping/nodes/charge", "unknown_name /mapping/nodes/x",
				"no_counterpart /tasks/charge",
			},
		},
		{
			"a mapping that says two things", shop + "outputs: {total: {from: total}}\n",
			run.Mapping{Nodes: map[string]string{"ship": "charge"}, Fields: map[string]string{"ok": "total", "total": "total"}, Edges: map[string]string{"d": "d"}, Drop: run.Dropped{Edges: []string{"d"}}},
			[]string{
				"ambiguous /mapping/drop/edges/d", "ambiguous /mapping/fields/total", "ambiguous /mapping/nodes/ship",
				"no_counterpart /tasks/charge", "no_counterpart /writes/quick/update/total", "unfit_value /interrupts/q/default",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := busy(t)
			next := shopMachine(t, tt.to)
			_, changed, err := next.Migrate(d.doc, run.Migration{From: d.machine.Graph(), Mapping: tt.m}, epoch)
			if tt.want == nil {
				if err != nil || !changed {
					t.Fatalf("%v, %v", changed, err)
				}
				return
			}
			var refused *run.MigrationError
			if !errors.As(err, &refused) || !errors.Is(err, run.ErrMigration) || changed {
				t.Fatalf("%v, %v", changed, err)
			}
			var got []string
			for _, p := range refused.Problems {
				got = append(got, fmt.Sprintf("%s %s", p.Kind, p.Path))
				if p.Reason == "" || !strings.Contains(err.Error(), p.Reason) {
					t.Errorf("the reason %q of %s is not told: %v", p.Reason, p.Path, err)
				}
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%v", diff, err)
			}
		})
	}
}

// Barriers in the middle of collecting, and what they have become.
func TestMigrationOfABarrierThatHasCollected(t *testing.T) {
	collecting := func(t *testing.T) *driver {
		d := busy(t)
		d.now = epoch.Add(time.Minute)
		d.commit(d.settle(run.Completed("charge", map[string]value.Value{"total": value.Value(`4`)})))
		if len(d.doc.Barriers) != 1 {
			t.Fatalf("nothing is collected: %+v", d.doc)
		}
		return d
	}
	for _, tt := range []struct {
		name, from, to string
		m              run.Mapping
		want           run.MigrationKind
		path           string
	}{
		{"the edge is gone", "  d: {from: [ask, charge, quick], to: ship}", "  e: {from: [ask, charge, quick], to: ship}", run.Mapping{Drop: run.Dropped{Edges: []string{"d"}}}, run.MigrateNoCounterpart, "/barriers/d"},
		{"the edge collects nothing any more", "[ask, charge, quick]", "quick", run.Mapping{}, run.MigrateDifferent, "/barriers/d"},
		{"the source does not lead to it any more", "[ask, charge, quick]", "[ask, charge]", run.Mapping{}, run.MigrateDifferent, "/barriers/d/quick"},
		{"nothing would make it fire", "[ask, charge, quick]", "[charge, quick]", run.Mapping{}, run.MigrateDifferent, "/barriers/d"},
		{"it is renamed with its source", "quick", "swift", run.Mapping{Nodes: map[string]string{"quick": "swift"}}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := collecting(t)
			p, changed, err := shopMachine(t, strings.ReplaceAll(shop, tt.from, tt.to)).Migrate(d.doc, run.Migration{From: d.machine.Graph(), Mapping: tt.m}, d.now)
			if tt.want == "" {
				if err != nil || !changed || len(p.Document.Barriers) != 1 || len(p.Document.Barriers[0].Sources) != 2 {
					t.Fatalf("%+v, %v", p.Document, err)
				}
				checkProposal(t, d.doc, p)
				return
			}
			var refused *run.MigrationError
			if !errors.As(err, &refused) || refused.Problems[0].Kind != tt.want || refused.Problems[0].Path != tt.path {
				t.Errorf("%v", err)
			}
		})
	}
}

// A migration between versions that differ in nothing the run holds changes its version,
// its lineage, its sequences and updated-at, and nothing else.
func TestAnIdentityMigrationChangesNothingButTheLineage(t *testing.T) {
	d := busy(t)
	next := shopMachine(t, shop+"outputs: {total: {from: total}}\n")
	p, changed, err := next.Migrate(d.doc, run.Migration{From: d.machine.Graph()}, d.now)
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	checkProposal(t, d.doc, p)
	want := *d.doc
	want.Graph, want.UpdatedAt, want.Seq, want.EventSeq = next.Graph().Ref(), d.now, d.doc.Seq+1, d.doc.EventSeq+2
	want.Lineage = []run.Ancestor{{Hash: d.doc.Graph.Hash, Until: want.Seq}}
	if diff := cmp.Diff(&want, p.Document); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(p.Events) != 2 || p.Events[0].Type != run.EventGraphMigrated || !strings.Contains(string(p.Events[0].Data), d.doc.Graph.Hash) {
		t.Errorf("events %+v", p.Events)
	}
	if len(d.doc.Timers) != 2 || !p.Schedule.At.Equal(d.doc.Timers[1].At) {
		t.Errorf("due at %v", p.Schedule)
	}
}

// A waiting run waits on under the new version, and its answer is taken there.
func TestAWaitingRunStaysWaitingAndIsAnsweredUnderTheNewVersion(t *testing.T) {
	d := newDriver(t, `
id: g
fields: {ok: {schema: {type: boolean}}}
nodes: {ask: {use: work, reads: {}, writes: {ok: ok}}}
edges: {in: {from: $start, to: ask}, out: {from: ask, to: $finish}}
`, value.Limits{})
	d.commit(d.settle(run.Ask("ask", run.Question{ID: "q", Field: "ok"})))
	if d.doc.Status != run.Waiting {
		t.Fatal(d.doc.Status)
	}
	next := run.NewMachine(publish(t, `
id: g
fields: {approved: {schema: {type: boolean}}}
nodes: {confirm: {use: work, reads: {}, writes: {ok: approved}}}
edges: {in: {from: $start, to: confirm}, out: {from: confirm, to: $finish}}
outputs: {approved: {from: approved}}
`), value.Limits{})
	p, _, err := next.Migrate(d.doc, run.Migration{From: d.machine.Graph(), Mapping: run.Mapping{
		Nodes: map[string]string{"ask": "confirm"}, Fields: map[string]string{"ok": "approved"},
	}}, d.now)
	if err != nil {
		t.Fatal(err)
	}
	d.commit(p)
	d.machine = next
	d.resolve("q", `true`)
	d.commit(d.settle(run.Completed("confirm", nil)))
	if d.doc.Status != run.Done || string(d.doc.Output) != `{"approved":true}` {
		t.Errorf("%s with %s", d.doc.Status, d.doc.Output)
	}
}

// What was never written is the version's default: a default belongs to the graph.
func TestDefaultsAreThoseOfTheVersion(t *testing.T) {
	const yaml = `
id: g
inputs: {a: {schema: {type: integer}, default: 1}}
fields: {b: {schema: {type: integer}, default: 1}, c: {schema: {type: integer}}}
nodes: {n: {use: work, reads: {}, writes: {c: c}}}
edges: {in: {from: $start, to: n}, again: {from: n, to: n}}
`
	d := newDriver(t, yaml, value.Limits{})
	d.commit(d.settle(run.Completed("n", map[string]value.Value{"c": value.Value(`5`)})))
	next := run.NewMachine(publish(t, strings.NewReplacer(
		"default: 1", "default: 2", "c: {schema: {type: integer}}", "c: {schema: {type: integer}, default: 2}, d: {schema: {}, default: null}").Replace(yaml)), value.Limits{})
	p, _, err := next.Migrate(d.doc, run.Migration{From: d.machine.Graph()}, d.now)
	if err != nil {
		t.Fatal(err)
	}
	checkProposal(t, d.doc, p)
	for name, want := range map[string]string{"a": "2", "b": "2", "c": "5", "d": "null"} {
		if got := string(p.Document.Value(name)); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
