package proptest

import (
	"context"
	"fmt"
	"maps"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// machine is one random history: a store, the model that says what the store must do, and
// workers that believe what they last heard.
type machine struct {
	rt    *rapid.T
	ctx   context.Context
	store backend.Store
	model *model
	judge *judge
	log   *transcript
	cov   *coverage

	// clock is the virtual clock. Every call names its instant; none uses the store's.
	clock time.Time
	// refs are the graph versions that runs are of, saved what was published, and when.
	refs      []graph.Ref
	saved     []savedGraph
	published map[savedGraph]time.Time

	views     []*view
	sent      []sentCommit
	inserts   []sentInsert
	mutations []sentMutation

	steps, runs, leases, commits int
	before                       picture
	trouble                      plight
}

// view is what one worker believes of a run that it was leased once: nobody tells it when
// the claim is gone.
type view struct {
	name     string
	worker   string
	lease    claim.Lease
	document *run.Document
}

// sentCommit, sentInsert and sentMutation are calls that may be sent again.
type sentCommit struct {
	name   string
	scope  backend.Scope
	commit backend.Commit
}

type sentInsert struct {
	owner backend.Owner
	in    backend.Initialization
}

type sentMutation struct {
	scope backend.Scope
	run   string
	id    checkpoint.ID
	kind  mutation
	now   time.Time
}

// remembered is how many calls and views are kept to be used again.
const remembered = 10

// owners of the runs of a machine, and the workers that claim them.
var (
	machineOwners = []backend.Owner{tenantless, acme, globex}
	workers       = []string{"ann", "bob", "cyd"}
)

func newMachine(rt *rapid.T, o Opened, cov *coverage) *machine {
	start := time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC)
	m := &machine{
		rt: rt, ctx: context.Background(), store: o.Store, model: newModel(), judge: newJudge(), cov: cov,
		log: newTranscript(start), clock: start, published: map[savedGraph]time.Time{},
		trouble: plight{Trouble: o.Hooks.Trouble},
	}
	for version := range 2 {
		ref, raw := published("proof", version)
		m.refs = append(m.refs, ref)
		for _, owner := range machineOwners {
			if err := m.store.SaveGraph(m.ctx, owner, ref, raw); err != nil {
				m.fail("G1", "SaveGraph: %v", err)
			}
			m.saved = append(m.saved, savedGraph{owner, ref})
		}
	}
	m.before = m.look()
	return m
}

// fail ends the history with the clause that it breaks and everything that led there.
func (m *machine) fail(clause, format string, args ...any) {
	m.rt.Helper()
	m.rt.Fatalf("%s: %s\n\nwhat happened:\n%s\n", clause, fmt.Sprintf(format, args...), m.log)
}

// step makes one action and holds the store against the model and against C1 to C12.
func (m *machine) step(*rapid.T) {
	m.steps++
	a := m.draw()
	m.judge.begin()
	held := maps.Clone(m.judge.held)
	m.strike(a)
	got, want, clause := a.do(m)
	if m.met() {
		m.log.answered(got + ", with trouble")
	} else {
		m.log.answered(got)
	}
	m.cov.count(a.name, got)
	if got != want {
		m.fail(clause, "the answer is %q; it must be %q", got, want)
	}
	after := m.look()
	m.compare(clause, after)
	m.judge.monotone(m.before, after, held)
	if verdicts := m.judge.judges(m.before, after); len(verdicts) > 0 {
		clause, text, _ := strings.Cut(verdicts[0], ": ")
		m.fail(clause, "%s", text)
	}
	m.before = after
}

// look takes a picture of the store. From step to step it reads in pages of another size, and every fifth step
// the events of another run in such pages.
func (m *machine) look() picture {
	m.rt.Helper()
	p, err := look(m.ctx, m.store, m.saved, pages{size: 1 + m.steps%5, turn: m.steps / 5})
	if err != nil {
		m.fail("R4", "reading the whole store: %v", err)
	}
	return p
}

// compare holds everything the store shows against the model.
func (m *machine) compare(clause string, after picture) {
	m.rt.Helper()
	graphs := after.Graphs
	after.Graphs = nil
	if want := m.model.picture(); !equal(want, after) {
		if diff := cmp.Diff(want, after, comparison); diff != "" {
			m.fail(clause, "the store is not what it must be (- must, + is):\n%s", diff)
		}
	}
	m.compareGraphs(graphs)
	m.compareScopes()
	m.compareReads()
}

// samePicture reports whether two pictures show the same runs and events.
func samePicture(a, b picture) bool { return equal(a, b) || cmp.Equal(a, b, comparison) }

// equal is a quick comparison that may miss an equality, but never a difference.
func equal(a, b picture) bool {
	return reflect.DeepEqual(a.Runs, b.Runs) && reflect.DeepEqual(a.Infos, b.Infos) && reflect.DeepEqual(a.Events, b.Events)
}

// compareGraphs requires of each owner's graph the versions that were published, newest
// first, at the instants at which they were first seen.
func (m *machine) compareGraphs(seen map[string][]backend.GraphVersion) {
	m.rt.Helper()
	for _, owner := range machineOwners {
		versions := seen[owner.String()+"/proof"]
		var want []savedGraph
		for _, s := range m.saved {
			if s.owner == owner {
				want = append(want, s)
			}
		}
		if len(versions) != len(want) {
			m.fail("G3", "%v has %d graph versions; there must be %d", owner, len(versions), len(want))
		}
		for i, v := range versions {
			s := savedGraph{owner, v.Ref}
			if !slices.Contains(want, s) {
				m.fail("G3", "%v has the graph version %s, which was not published", owner, v.Ref.Hash)
			}
			if at, known := m.published[s]; known && !at.Equal(v.PublishedAt) {
				m.fail("G1", "the publication instant of %s changed from %v to %v", v.Ref.Hash, at, v.PublishedAt)
			}
			m.published[s] = v.PublishedAt
			if i > 0 && compareVersions(versions[i-1], v) <= 0 {
				m.fail("G3", "the graph versions of %v are out of order", owner)
			}
		}
	}
}

func compareVersions(a, b backend.GraphVersion) int {
	if !a.PublishedAt.Equal(b.PublishedAt) {
		return a.PublishedAt.Compare(b.PublishedAt)
	}
	return strings.Compare(a.Ref.Hash, b.Ref.Hash)
}

// compareScopes requires that each owner sees its own runs and no other: all of them in its
// list, and one of the others', which changes from step to step, in no read.
func (m *machine) compareScopes() {
	m.rt.Helper()
	ids := m.model.ids()
	for i, owner := range machineOwners {
		runs, err := allRuns(m.ctx, m.store, backend.Of(owner), backend.Query{Limit: 1 + (m.steps+i)%3})
		if err != nil {
			m.fail("R5", "%v", err)
		}
		n := 0
		for _, id := range ids {
			if m.model.runs[id].owner == owner {
				n++
			}
		}
		if len(runs) != n {
			m.fail("C10", "%v lists %d runs of its %d", owner, len(runs), n)
		}
		for _, s := range runs {
			if m.model.runs[s.Run] == nil || m.model.runs[s.Run].owner != owner {
				m.fail("C10", "%v lists %s, which is not its own", owner, s.Run)
			}
		}
		if len(ids) == 0 {
			continue
		}
		id := ids[(m.steps+i)%len(ids)]
		_, err = m.store.InspectRun(m.ctx, backend.Of(owner), id)
		want := "not found"
		if m.model.runs[id].owner == owner {
			want = "ok"
		}
		if got := answer(err, "ok"); got != want {
			m.fail("C10", "%v inspects %s: %q; it must be %q", owner, id, got, want)
		}
	}
}

// compareReads requires what a list by status and two reads of one run show; the status and
// the run change from step to step.
func (m *machine) compareReads() {
	m.rt.Helper()
	ids := m.model.ids()
	status := []run.Status{run.Running, run.Waiting, run.Done, run.Failed, run.Cancelled}[m.steps%5]
	runs, err := allRuns(m.ctx, m.store, backend.System(), backend.Query{Statuses: []run.Status{status}, Limit: 2})
	if err != nil {
		m.fail("R5", "%v", err)
	}
	n := 0
	for _, id := range ids {
		if m.model.runs[id].document.Status == status {
			n++
		}
	}
	if len(runs) != n || slices.ContainsFunc(runs, func(s backend.Summary) bool { return s.Status != status }) {
		m.fail("R5", "%d runs are listed as %s; there are %d", len(runs), status, n)
	}
	if len(ids) == 0 {
		return
	}
	r := m.model.runs[ids[m.steps%len(ids)]]
	d, err := m.store.FetchRun(m.ctx, backend.Of(r.owner), r.document.ID)
	if err != nil || d.Seq != r.document.Seq || d.Status != r.document.Status {
		m.fail("R4", "FetchRun of %s does not answer the document that InspectRun answers: %v", r.document.ID, err)
	}
	latest, err := m.store.LatestEvent(m.ctx, backend.Of(r.owner), r.document.ID)
	if err != nil || latest == nil || latest.Seq != r.document.EventSeq {
		m.fail("E2", "the latest event of %s is not event %d: %v", r.document.ID, r.document.EventSeq, err)
	}
}

// action is one kind of step. do makes it: it adds a line to the transcript, calls the
// store and asks the model, and hands back what the store answered, what it must answer,
// and the clause that says so.
type action struct {
	name    string
	weight  int
	enabled func(m *machine) bool
	do      func(m *machine) (got, want, clause string)
	// troubled: the model knows what trouble may make of it.
	troubled bool
}

// draw picks an action among those that are enabled, in a fixed order, so that nothing is
// drawn that has to be thrown away.
func (m *machine) draw() action {
	if resend := m.trouble.resend; resend != nil {
		m.trouble.resend = nil
		if m.oneIn(2, "sent again") {
			return action{name: "resend", do: resend}
		}
	}
	var choices []string
	for _, a := range actions {
		if a.enabled(m) {
			for range a.weight {
				choices = append(choices, a.name)
			}
		}
	}
	name := choices[even(len(choices)).Draw(m.rt, "action")]
	return actions[slices.IndexFunc(actions, func(a action) bool { return a.name == name })]
}

// even draws an index below n, each as often as another, and shrinks to 0. rapid's own
// generators prefer what is small, which would starve whatever stands last.
func even(n int) *rapid.Generator[int] {
	return rapid.Custom(func(t *rapid.T) int {
		v := 0
		for range bits.Len(uint(n)) + 4 {
			v *= 2
			if rapid.Bool().Draw(t, "") {
				v++
			}
		}
		return v % n
	})
}

// pick draws one of the values; the first is the plainest.
func pick[V any](m *machine, label string, values ...V) V {
	return values[even(len(values)).Draw(m.rt, label)]
}

// oneIn is true once in n draws.
func (m *machine) oneIn(n int, label string) bool {
	return even(n).Draw(m.rt, label) == n-1
}

// run draws the run of a call: nearly always one that there is.
func (m *machine) run() string {
	var choices []string
	for range 6 {
		choices = append(choices, m.model.ids()...)
	}
	return pick(m, "run", append(choices, "gone")...)
}

// commitID is a checkpoint id not used before in the history.
func (m *machine) commitID() checkpoint.ID {
	m.commits++
	return checkpointID(m.commits)
}

// corners are the instants at which something changes: the wakes and the expiries, and a
// microsecond to either side of them.
func (m *machine) corners() []time.Time {
	var corners []time.Time
	for _, id := range m.model.ids() {
		r := m.model.runs[id]
		if !r.wake.IsZero() {
			corners = append(corners, r.wake, r.wake.Add(-tick))
		}
		if !r.claimedAt.IsZero() {
			corners = append(corners, r.claimedAt.Add(ttl), r.claimedAt.Add(ttl+tick), r.claimedAt.Add(tick))
		}
	}
	return corners
}

// instant draws the now of a call: mostly the clock, sometimes another host's, sometimes a
// corner that is not long past.
func (m *machine) instant() time.Time {
	m.rt.Helper()
	choices := []time.Time{m.clock, m.clock, m.clock, m.clock, m.clock.Add(-time.Second), m.clock.Add(time.Second)}
	for _, c := range m.corners() {
		if !c.Before(m.clock.Add(-time.Second)) {
			choices = append(choices, c)
		}
	}
	return pick(m, "now", choices...)
}

// scope draws who asks for a run: mostly somebody who sees it.
func (m *machine) scope(id string) backend.Scope {
	var choices []backend.Scope
	for range 5 {
		choices = append(choices, backend.System())
		if r := m.model.runs[id]; r != nil {
			choices = append(choices, backend.Of(r.owner))
		}
	}
	for _, o := range machineOwners {
		choices = append(choices, backend.Of(o))
	}
	return pick(m, "scope", choices...)
}

func scopeName(s backend.Scope) string {
	if owner, one := s.Owner(); one {
		return owner.String()
	}
	return "the system"
}

// remember keeps the latest few of what may be used again.
func remember[V any](kept []V, v V) []V {
	kept = append(kept, v)
	if len(kept) > remembered {
		kept = kept[1:]
	}
	return kept
}
