package run_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// driver plays a run without a backend: what it commits is the next document.
type driver struct {
	t       testing.TB
	machine *run.Machine
	doc     *run.Document
	now     time.Time
}

func newDriver(t testing.TB, yaml string, limits value.Limits) *driver {
	t.Helper()
	d := &driver{t: t, machine: run.NewMachine(publish(t, yaml), limits), now: epoch}
	p, err := d.machine.Init(run.Initial{Run: "r"}, d.now)
	if err != nil {
		t.Fatal(err)
	}
	d.commit(p)
	return d
}

func (d *driver) commit(p run.Proposal) {
	d.t.Helper()
	checkProposal(d.t, d.doc, p)
	d.doc = p.Document
}

func (d *driver) plan() run.Plan {
	d.t.Helper()
	plan, err := d.machine.Plan(d.doc, d.now)
	if err != nil {
		d.t.Fatal(err)
	}
	return plan
}

func (d *driver) settle(results ...run.Result) run.Proposal {
	d.t.Helper()
	p, err := d.machine.Settle(d.doc, d.plan(), results, d.now)
	if err != nil {
		d.t.Fatal(err)
	}
	return p
}

func (d *driver) resolve(id, answer string) {
	d.t.Helper()
	p, err := d.machine.Resolve(d.doc, id, value.Value(answer), d.now)
	if err != nil {
		d.t.Fatal(err)
	}
	d.commit(p)
}

const two = `
id: g
fields: {ok: {schema: {type: boolean}}, n: {schema: {type: integer}}}
nodes:
  ask: {use: work, writes: {ok: ok}}
  other: {use: work, reads: {ok: ok}, writes: {n: n}, retry: {max_attempts: 3, backoff: {initial: 1m}}}
edges: {a: {from: $start, to: ask}, b: {from: $start, to: other}}
outputs: {ok: {from: ok}, n: {from: n}}
`

// An answer lands between a node's look, the park, and the next plan: wherever it lands,
// the fence refuses what was built without it, and the run ends with it.
func TestH16AnAnswerIsNeverLostAroundAPark(t *testing.T) {
	for land := range 3 {
		d := newDriver(t, two, value.Limits{})
		d.commit(d.settle(run.Ask("ask", run.Question{ID: "q", Field: "ok"}), run.Completed("other", nil)))
		steps := []func(){
			// The look: a vehicle reads the document and plans. It finds nothing to do.
			func() {
				if plan := d.plan(); land > 0 && !plan.Waiting {
					t.Fatalf("%+v", plan)
				}
			},
			func() {},
		}
		seen := d.doc
		for i, step := range steps {
			if land == i {
				d.resolve("q", "true")
			}
			step()
		}
		if land == 2 {
			d.resolve("q", "true")
		}
		if land < 2 && seen.Seq == d.doc.Seq {
			t.Fatal("the answer did not move the sequence that a park is fenced by")
		}
		plan := d.plan()
		if len(plan.Execute) != 1 || len(plan.Execute[0].Answers) != 1 || string(plan.Execute[0].Answers[0].Value) != "true" {
			t.Fatalf("landed at %d: %+v", land, plan)
		}
	}
}

// A superstep is in flight, asks and parks, while another question is answered: every
// order of plan, answer and settle. A proposal that was built before the answer has a
// sequence that has gone, so no park can cover the answer up.
func TestH16EveryOrderOfCheckAnswerAndPark(t *testing.T) {
	const graph = `
id: g
nodes:
  ask: {use: work}
  poll: {use: work}
edges: {a: {from: $start, to: ask}, b: {from: $start, to: poll}, c: {from: poll, to: poll}}
`
	for order, name := range []string{"answer, plan, park", "plan, answer, park", "plan, park, answer"} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, graph, value.Limits{})
			d.commit(d.settle(run.Ask("ask", run.Question{ID: "q"}), run.Completed("poll", nil)))
			if order == 0 {
				d.resolve("q", "1")
			}
			planned, plan := d.doc, d.plan()
			if order == 1 {
				d.resolve("q", "1")
			}
			results := []run.Result{run.Snooze("poll", d.now.Add(time.Hour))}
			if order == 0 {
				results = append(results, run.Completed("ask", nil))
			}
			p, err := d.machine.Settle(planned, plan, results, d.now)
			if err != nil {
				t.Fatal(err)
			}
			if stale := p.Expected != d.doc.Seq; stale != (order == 1) {
				t.Fatalf("built on %d, the run is at %d", p.Expected, d.doc.Seq)
			} else if !stale {
				d.commit(p)
			} else if _, err := d.machine.Settle(d.doc, plan, results, d.now); !errors.Is(err, run.ErrInvalidResults) {
				t.Fatalf("a plan of an older document was settled: %v", err)
			}
			if order == 2 {
				d.resolve("q", "1")
			}
			i, ok := d.doc.Interrupt("q")
			if !ok || i.Status != run.InterruptResolved {
				t.Fatalf("%+v", i)
			}
			if order == 1 {
				told := d.plan().Execute[0]
				if told.Node.ID != "ask" || len(told.Answers) != 1 {
					t.Fatalf("%+v", told)
				}
			}
		})
	}
}

// Cancel and completion at once, in both orders: the first commit wins, and the other
// gets a defined answer.
func TestH17CancelBesideComplete(t *testing.T) {
	for _, cancelFirst := range []bool{true, false} {
		d := newDriver(t, two, value.Limits{})
		before := d.doc
		done := d.settle(run.Completed("ask", nil), run.Completed("other", nil))
		cancelled, changed, err := run.Cancel(d.doc, "no", d.now)
		if err != nil || !changed {
			t.Fatal(err)
		}
		if done.Document.Status != run.Done || cancelled.Document.Status != run.Cancelled || done.Expected != cancelled.Expected {
			t.Fatal("the two do not build on the same checkpoint")
		}
		if cancelFirst {
			d.commit(cancelled)
			plan, _ := d.machine.Plan(before, d.now)
			if _, err := d.machine.Settle(d.doc, plan, []run.Result{run.Completed("ask", nil), run.Completed("other", nil)}, d.now); !errors.Is(err, run.ErrInvalidResults) {
				t.Fatalf("settled a cancelled run: %v", err)
			}
			continue
		}
		d.commit(done)
		if _, changed, err := run.Cancel(d.doc, "no", d.now); changed || !errors.Is(err, run.ErrInactiveRun) {
			t.Fatalf("%v, %v", changed, err)
		}
	}
}

// Answering while a sibling waits for its retry neither wakes the run earlier nor loses
// the value.
func TestH18ResolveWhileParked(t *testing.T) {
	d := newDriver(t, two, value.Limits{})
	d.commit(d.settle(run.Ask("ask", run.Question{ID: "q", Field: "ok"}), run.Retry("other", run.Failure{Message: "later"}, d.now.Add(10*time.Minute))))
	due := d.now.Add(10 * time.Minute)
	d.now = d.now.Add(time.Minute)
	p, err := d.machine.Resolve(d.doc, "q", value.Value("true"), d.now)
	if err != nil {
		t.Fatal(err)
	}
	if p.Schedule != (checkpoint.Schedule{Kind: checkpoint.ReleaseAt, At: due}) {
		t.Fatalf("%+v", p.Schedule)
	}
	d.commit(p)
	if plan := d.plan(); !plan.Wake.Equal(due) {
		t.Fatalf("%+v", plan)
	}
	d.now = due
	retried := d.plan().Execute
	if len(retried) != 1 || retried[0].Node.ID != "other" || len(retried[0].Snapshot) != 0 {
		t.Fatalf("the parked task lost its snapshot: %+v", retried)
	}
	d.commit(d.settle(run.Completed("other", nil)))
	told := d.plan().Execute
	if len(told) != 1 || told[0].Node.ID != "ask" || len(told[0].Answers) != 1 || string(d.doc.Value("ok")) != "true" {
		t.Fatalf("the answer was lost: %+v", told)
	}
}

// After a cancel nothing is left that could wake, run or be answered.
func TestH19CancelThenNothing(t *testing.T) {
	for name, prepare := range map[string]func(*driver){
		"never started": func(*driver) {},
		"parked": func(d *driver) {
			d.commit(d.settle(run.Ask("ask", run.Question{Deadline: d.now.Add(time.Hour)}), run.Snooze("other", d.now.Add(time.Hour))))
		},
		"waiting": func(d *driver) {
			d.commit(d.settle(run.Ask("ask", run.Question{}), run.Completed("other", nil)))
		},
		"held back": func(d *driver) {
			d.commit(d.settle(run.Completed("ask", nil), run.Snooze("other", d.now.Add(time.Hour))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, two, value.Limits{})
			prepare(d)
			p, changed, err := run.Cancel(d.doc, "stop", d.now)
			if err != nil || !changed {
				t.Fatal(err)
			}
			d.commit(p)
			if len(d.doc.Timers)+len(d.doc.Tasks)+len(d.doc.Writes)+len(d.doc.Pending)+len(d.doc.OpenInterrupts()) != 0 {
				t.Fatalf("left over: %+v", d.doc)
			}
			if p.Schedule.Kind != checkpoint.ReleaseTerminal || !d.plan().Finished || d.doc.NeedsAnswer() {
				t.Fatal("something is still to happen")
			}
		})
	}
}

// Texts, values and outputs at their limits, and one byte beyond: a permanent failure
// with a type, and never a part of what was given.
func TestH26Limits(t *testing.T) {
	const graph = `
id: g
fields: {text: {schema: {type: string}}, copy: {schema: {type: string}}}
nodes: {a: {use: work, writes: {text: text, copy: copy}, retry: {max_attempts: 2, backoff: {initial: 1s}}}}
edges: {a: {from: $start, to: a}}
outputs: {text: {from: text}, copy: {from: copy}}
`
	limits := value.Limits{Value: 1000, Document: 1 << 20, EventPayload: 1 << 18}
	quoted := func(size int) value.Value { return value.Value(`"` + strings.Repeat("x", size-2) + `"`) }

	t.Run("state value", func(t *testing.T) {
		for over := -1; over <= 1; over++ {
			d := newDriver(t, graph+"", limits)
			d.commit(d.settle(run.Completed("a", map[string]value.Value{"text": quoted(1000 + over)})))
			// The output is an object around the value, and so is over the limit earlier.
			if d.doc.Status != run.Failed || d.doc.Failure.Code != run.CodeTooLarge {
				t.Fatalf("%+v", d.doc.Failure)
			}
			if named := d.doc.Failure.Node == "a"; named != (over > 0) {
				t.Fatalf("%d over: %+v", over, d.doc.Failure)
			}
		}
	})
	t.Run("output", func(t *testing.T) {
		const around = len(`{"text":}`)
		for over := -1; over <= 1; over++ {
			d := newDriver(t, graph, limits)
			d.commit(d.settle(run.Completed("a", map[string]value.Value{"text": quoted(1000 - around + over)})))
			if over > 0 {
				if d.doc.Status != run.Failed || d.doc.Failure.Code != run.CodeTooLarge || d.doc.State != nil {
					t.Fatalf("%+v", d.doc)
				}
				continue
			}
			if d.doc.Status != run.Done || len(d.doc.Output) != 1000+over {
				t.Fatalf("%s with %d bytes", d.doc.Status, len(d.doc.Output))
			}
		}
	})
	t.Run("error text", func(t *testing.T) {
		for over := -1; over <= 1; over++ {
			d := newDriver(t, graph, limits)
			text := strings.Repeat("é", run.MaxText/2-1) + strings.Repeat("x", 2+over)
			d.commit(d.settle(run.Retry("a", run.Failure{Code: "mine", Message: text}, time.Time{})))
			if over <= 0 {
				if d.doc.Status != run.Running || d.doc.Tasks[0].LastError != text {
					t.Fatalf("%s", d.doc.Status)
				}
				continue
			}
			f := d.doc.Failure
			if d.doc.Status != run.Failed || f.Code != run.CodeTooLarge || f.Node != "a" || string(f.Details) != `{"code":"mine"}` {
				t.Fatalf("%+v", f)
			}
			if want := fmt.Sprintf("has %d bytes, the limit is %d", run.MaxText+1, run.MaxText); !strings.Contains(f.Message, want) {
				t.Fatalf("%s", f.Message)
			}
		}
	})
	t.Run("reason of a skip", func(t *testing.T) {
		for over := -1; over <= 1; over++ {
			d := newDriver(t, graph, limits)
			p := d.settle(run.Skip("a", strings.Repeat("x", run.MaxText+over)))
			d.commit(p)
			if over <= 0 != (d.doc.Status == run.Done && len(p.Events[0].Reason) == run.MaxText+over) {
				t.Fatalf("%s: %+v", d.doc.Status, d.doc.Failure)
			}
		}
	})
	t.Run("reason of a cancel", func(t *testing.T) {
		for over := -1; over <= 1; over++ {
			d := newDriver(t, graph, limits)
			_, changed, err := run.Cancel(d.doc, strings.Repeat("x", run.MaxReason+over), d.now)
			if over <= 0 != (changed && err == nil) {
				t.Fatalf("%v, %v", changed, err)
			}
		}
	})
}

// A document grows until it is over its limit: the commit that would do it fails the run
// instead, and there is always room for that, and for a cancel with its reason.
func TestH26AFullDocumentCanStillEnd(t *testing.T) {
	const graph = `
id: g
fields: {log: {schema: {type: array}, reducer: append}}
nodes: {a: {use: work, writes: {log: log}}}
edges: {a: {from: $start, to: a}, b: {from: a, to: a}}
`
	for _, limit := range []int{4 << 10, 9_999, 32 << 10} {
		for step := range 4 {
			limits := value.Limits{Document: limit}
			d := newDriver(t, graph, limits)
			item := value.Value(`"` + strings.Repeat("\\u0001", limit/300+step) + `"`)
			for d.doc.Status == run.Running {
				if p, _, err := run.Cancel(d.doc, strings.Repeat("x", min(run.MaxReason, limit/16)), d.now); err != nil || size(t, p.Document) > limit {
					t.Fatalf("a cancel of %d bytes, the limit is %d: %v", size(t, p.Document), limit, err)
				}
				d.commit(d.settle(run.Completed("a", map[string]value.Value{"log": item})))
				if size(t, d.doc) > limit {
					t.Fatalf("%d bytes, the limit is %d", size(t, d.doc), limit)
				}
			}
			if d.doc.Status != run.Failed || d.doc.Failure.Code != run.CodeTooLarge || len(d.doc.Value("log")) < limit/2 {
				t.Fatalf("%s with %d bytes: %+v", d.doc.Status, size(t, d.doc), d.doc.Failure)
			}
		}
	}
}

func size(t rapid.TB, d *run.Document) int {
	t.Helper()
	raw, err := run.Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	return len(raw)
}

// A failure that is itself over a limit is told in short, and says so.
func TestH26AFailureTooLargeToTell(t *testing.T) {
	d := newDriver(t, two, value.Limits{Document: 4 << 10, EventPayload: 1 << 10})
	d.commit(d.settle(run.Permanent("ask", run.Failure{Code: "mine", Message: strings.Repeat("x", 2000)}), run.Completed("other", nil)))
	if f := d.doc.Failure; f.Code != run.CodeTooLarge || f.Node != "ask" {
		t.Fatalf("%+v", f)
	}
	d = newDriver(t, two, value.Limits{Document: 2 << 10})
	d.commit(d.settle(run.Permanent("ask", run.Failure{Code: "mine", Message: strings.Repeat("x", 2000)}), run.Completed("other", nil)))
	if f := d.doc.Failure; f.Code != run.CodeTooLarge || !strings.Contains(f.Message, "mine") || size(t, d.doc) > 2<<10 {
		t.Fatalf("%+v", f)
	}
}

// A skip's reason that no event can hold fails by name, and a default that no longer
// fits into the document when its deadline comes fails the run.
func TestH26WhatAnAnswerWouldMakeTooLarge(t *testing.T) {
	d := newDriver(t, two, value.Limits{EventPayload: 1 << 10})
	d.commit(d.settle(run.Skip("ask", strings.Repeat("x", 1<<10)), run.Completed("other", nil)))
	if f := d.doc.Failure; f == nil || f.Code != run.CodeTooLarge || f.Node != "ask" {
		t.Fatalf("%+v", f)
	}
	d = newDriver(t, two, value.Limits{Document: 4 << 10})
	d.commit(d.settle(run.Ask("ask", run.Question{Deadline: d.now, Default: value.Value(`"` + strings.Repeat("x", 2<<10) + `"`)}), run.Completed("other", nil)))
	d.commit(*d.plan().Commit)
	if f := d.doc.Failure; f == nil || f.Code != run.CodeTooLarge || size(t, d.doc) > 4<<10 {
		t.Fatalf("%+v", d.doc)
	}
}

// An answer that would make the document too large is refused, and changes nothing.
func TestH26AnAnswerTooLarge(t *testing.T) {
	d := newDriver(t, two, value.Limits{Document: 4 << 10, Value: 8 << 10})
	d.commit(d.settle(run.Ask("ask", run.Question{ID: "q"}), run.Completed("other", nil)))
	for _, n := range []int{4000, 9000} {
		_, err := d.machine.Resolve(d.doc, "q", value.Value(`"`+strings.Repeat("x", n)+`"`), d.now)
		if !errors.Is(err, run.ErrInvalidAnswer) || !errors.Is(err, value.ErrTooLarge) {
			t.Fatal(err)
		}
	}
	d.resolve("q", `"`+strings.Repeat("x", 1000)+`"`)
}

// Whatever bytes a failure holds, it is stored: as text, with what is not UTF-8 replaced.
func TestH29FailuresAreStorable(t *testing.T) {
	for name, c := range map[string]struct {
		in   run.Failure
		want run.Failure
	}{
		"invalid UTF-8":     {run.Failure{Code: "c\xff", Message: "a\xff\xfeb"}, run.Failure{Code: "c\uFFFD", Message: "a\uFFFD\uFFFDb"}},
		"half a rune":       {run.Failure{Code: "c", Message: "caf\xc3"}, run.Failure{Code: "c", Message: "caf\uFFFD"}},
		"a true U+FFFD":     {run.Failure{Code: "c", Message: "\uFFFD"}, run.Failure{Code: "c", Message: "\uFFFD"}},
		"NUL":               {run.Failure{Code: "c", Message: "a\x00b"}, run.Failure{Code: "c", Message: "a\x00b"}},
		"nothing":           {run.Failure{}, run.Failure{Code: run.CodeError, Message: "the node gave no error text"}},
		"a foreign node":    {run.Failure{Code: "c", Message: "m", Node: "someone"}, run.Failure{Code: "c", Message: "m"}},
		"details":           {run.Failure{Code: "c", Message: "m", Details: value.Value(` {"b":1, "a":[]}`)}, run.Failure{Code: "c", Message: "m", Details: value.Value(`{"a":[],"b":1}`)}},
		"details, not JSON": {run.Failure{Code: "c", Message: "m", Details: value.Value("{\xff")}, run.Failure{Code: "c", Message: "m", Details: value.Value(`"{` + "\uFFFD" + `"`)}},
		"empty details":     {run.Failure{Code: "c", Message: "m", Details: value.Value{}}, run.Failure{Code: "c", Message: "m"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Node = "ask"
			d := newDriver(t, two, value.Limits{})
			p := d.settle(run.Permanent("ask", c.in), run.Completed("other", nil))
			d.commit(p)
			if diff := cmp.Diff(&c.want, d.doc.Failure); diff != "" {
				t.Fatal(diff)
			}
			if diff := cmp.Diff(&c.want, p.Events[0].Failure); diff != "" {
				t.Fatal(diff)
			}
		})
	}
	for _, reason := range []string{"\xff", "\x00", ""} {
		d := newDriver(t, two, value.Limits{})
		d.commit(d.settle(run.Skip("ask", reason), run.Snooze("other", time.Time{})))
		p, _, err := run.Cancel(d.doc, reason, d.now)
		if err != nil {
			t.Fatal(err)
		}
		d.commit(p)
	}
}

// A nil update, and a nil value within one, write nothing.
func TestH29NilResults(t *testing.T) {
	for _, update := range []map[string]value.Value{nil, {}, {"ok": nil}} {
		d := newDriver(t, two, value.Limits{})
		d.commit(d.settle(run.Completed("ask", update), run.Completed("other", nil)))
		if d.doc.Status != run.Done || d.doc.State != nil {
			t.Fatalf("%v: %+v", update, d.doc)
		}
	}
}

// Maps reach neither proposals nor events in their own order: the same run twice, with
// many inputs, fields, metadata and names at once, gives the same bytes.
func TestH30TheSameRunTwiceGivesTheSameBytes(t *testing.T) {
	var yaml, input strings.Builder
	yaml.WriteString("id: g\ninputs:\n")
	input.WriteString("{")
	for i := range 30 {
		fmt.Fprintf(&yaml, "  in%d: {schema: {type: integer}}\n", i)
		fmt.Fprintf(&input, `"in%d":%d,`, i, i)
	}
	yaml.WriteString("fields:\n")
	update := map[string]value.Value{}
	var names []string
	for i := range 30 {
		fmt.Fprintf(&yaml, "  f%d: {schema: {type: array}, reducer: append}\n", i)
		update[fmt.Sprintf("f%d", i)] = nil
		names = append(names, fmt.Sprintf("f%d: f%d", i, i))
	}
	yaml.WriteString("nodes:\n")
	writes := "{use: work, writes: {" + strings.Join(names, ", ") + "}}"
	edges := "edges:\n"
	for i := range 10 {
		fmt.Fprintf(&yaml, "  n%d: %s\n", i, writes)
		edges += fmt.Sprintf("  s%d: {from: $start, to: n%d}\n  e%d: {from: n%d, to: $finish}\n", i, i, i, i)
	}
	yaml.WriteString(edges)
	metadata := map[string]string{}
	for i := range 30 {
		metadata[fmt.Sprintf("key%d", i)] = "v"
	}
	var first []byte
	for range 20 {
		m := run.NewMachine(publish(t, yaml.String()), value.Limits{})
		p, err := m.Init(run.Initial{Run: "r", Input: value.Value(strings.TrimSuffix(input.String(), ",") + "}"), Metadata: metadata}, epoch)
		if err != nil {
			t.Fatal(err)
		}
		all := bytesOf(t, p)
		plan, err := m.Plan(p.Document, epoch)
		if err != nil {
			t.Fatal(err)
		}
		var results []run.Result
		for i, a := range slices.Backward(plan.Execute) {
			for name := range update {
				update[name] = value.Value(fmt.Sprintf("[%d]", i))
			}
			results = append(results, run.Completed(a.Node.ID, maps.Clone(update)))
		}
		p, err = m.Settle(p.Document, plan, results, epoch)
		if err != nil {
			t.Fatal(err)
		}
		all += bytesOf(t, p)
		for _, c := range p.Document.State {
			if string(c.Value) != "[0,1,2,3,4,5,6,7,8,9]" {
				t.Fatalf("%s is not in node order: %s", c.Name, c.Value)
			}
		}
		if first == nil {
			first = []byte(all)
		}
		if !bytes.Equal(first, []byte(all)) {
			t.Fatalf("twice:\n%s\n%s", first, all)
		}
	}
	// Of several mistakes the same one is always told.
	var told string
	for range 20 {
		d := newDriver(t, two, value.Limits{})
		d.commit(d.settle(run.Completed("ask", map[string]value.Value{"x": value.Null(), "y": value.Null(), "z": value.Null()}), run.Completed("other", nil)))
		if told == "" {
			told = d.doc.Failure.Message
		}
		if told != d.doc.Failure.Message {
			t.Fatalf("%q and %q", told, d.doc.Failure.Message)
		}
	}
}

// A sleep of a day takes no time when the clock is an argument.
func TestH34ALongSleepEndsWhenTheClockSaysSo(t *testing.T) {
	d := newDriver(t, two, value.Limits{})
	d.commit(d.settle(run.Completed("ask", nil), run.Snooze("other", d.now.Add(24*time.Hour))))
	d.now = d.now.Add(24*time.Hour - time.Microsecond)
	if plan := d.plan(); !plan.Wake.Equal(epoch.Add(24 * time.Hour)) {
		t.Fatalf("%+v", plan)
	}
	d.now = d.now.Add(time.Microsecond)
	a := d.plan().Execute
	if len(a) != 1 || a[0].Attempt != 1 || !a[0].PlannedAt.Equal(epoch) {
		t.Fatalf("%+v", a)
	}
	d.commit(d.settle(run.Completed("other", nil)))
	if d.doc.Status != run.Done {
		t.Fatal(d.doc.Status)
	}
}

// Sleeps and snoozes use nothing up, and leave nothing behind in the document.
func TestH6AHundredThousandSnoozesUseNoAttemptUp(t *testing.T) {
	d := newDriver(t, two, value.Limits{})
	d.commit(d.settle(run.Completed("ask", nil), run.Snooze("other", d.now)))
	before := size(t, d.doc)
	for range 100_000 {
		d.now = d.now.Add(time.Second)
		p, err := d.machine.Settle(d.doc, d.plan(), []run.Result{run.Snooze("other", d.now)}, d.now)
		if err != nil {
			t.Fatal(err)
		}
		d.doc = p.Document
	}
	if a := d.plan().Execute[0]; a.Attempt != 1 {
		t.Fatalf("attempt %d", a.Attempt)
	}
	if grown := size(t, d.doc) - before; grown > 20 {
		t.Fatalf("the document grew by %d bytes", grown)
	}
}

// A branch, a deadline or a signal that a commit has chosen is in that commit: what comes
// later, or again, does not change what is planned from it.
func TestH37DecidedStaysDecided(t *testing.T) {
	d := newDriver(t, `
id: g
fields: {ok: {schema: {type: boolean}}}
nodes: {ask: {use: work, writes: {ok: ok}}, yes: {use: work}, no: {use: work}}
edges:
  a: {from: $start, to: ask}
  b: {from: ask, to: yes, when: state.ok}
  c: {from: ask, to: no, when: not state.ok}
`, value.Limits{})
	d.commit(d.settle(run.Ask("ask", run.Question{ID: "q", Field: "ok", Deadline: d.now.Add(time.Minute), Default: value.Value("false")})))
	asked := d.doc
	d.now = d.now.Add(time.Minute)
	expired := d.plan().Commit
	if expired == nil {
		t.Fatal("the deadline passed, and nothing is committed")
	}
	// An answer that was built beside it is refused by the sequence, one that is made
	// after it by the machine.
	beside, err := d.machine.Resolve(asked, "q", value.Value("true"), d.now)
	if err != nil || beside.Expected != expired.Expected {
		t.Fatalf("%v", err)
	}
	d.commit(*expired)
	if _, err := d.machine.Resolve(d.doc, "q", value.Value("true"), d.now); !errors.Is(err, run.ErrAlreadyResolved) {
		t.Fatal(err)
	}
	d.commit(d.settle(run.Completed("ask", nil)))
	for range 3 {
		if a := d.plan().Execute; len(a) != 1 || a[0].Node.ID != "no" {
			t.Fatalf("%+v", a)
		}
		d.now = d.now.Add(time.Hour)
	}
	// The branch is in the document: planning it anew, elsewhere, takes the same one.
	raw, err := run.Encode(d.doc)
	if err != nil {
		t.Fatal(err)
	}
	if d.doc, err = run.Decode(raw); err != nil {
		t.Fatal(err)
	}
	if a := d.plan().Execute; len(a) != 1 || a[0].Node.ID != "no" {
		t.Fatalf("%+v", a)
	}
}

// The first commit to land decides, in whatever order a cancel and a node's end come.
func TestH38ACancelIsNeverOverwritten(t *testing.T) {
	for name, result := range map[string]run.Result{
		"completion": run.Completed("other", nil),
		"failure":    run.Permanent("other", run.Failure{Message: "no"}),
		"retry":      run.Retry("other", run.Failure{Message: "later"}, time.Time{}),
	} {
		d := newDriver(t, two, value.Limits{})
		held, plan := d.doc, d.plan()
		p, _, err := run.Cancel(d.doc, "stop", d.now)
		if err != nil {
			t.Fatal(err)
		}
		d.commit(p)
		late, err := d.machine.Settle(held, plan, []run.Result{run.Completed("ask", nil), result}, d.now)
		if err != nil {
			t.Fatal(err)
		}
		if late.Expected == d.doc.Seq {
			t.Fatalf("%s: the late proposal still fits", name)
		}
		if !d.plan().Finished {
			t.Fatal("a cancelled run plans")
		}
	}
}
