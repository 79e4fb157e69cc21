package proptest

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// model is what a store must hold after a history of calls, and what it must answer to the
// next one. It is written for a reader who has the contract beside it: slow, plain and
// with nothing taken from the packages it judges but their types. Instants are whole
// microseconds in UTC, and arguments are in order; both are the conformance cases' matter.
type model struct {
	runs map[string]*modelRun
	keys map[modelKey]*modelHolder
	// tokens are all that were ever issued.
	tokens map[claim.Token]bool
}

// modelRun is one run: its columns, its document and its events.
type modelRun struct {
	owner      backend.Owner
	document   *run.Document
	events     []run.Event
	kind       checkpoint.Type
	checkpoint checkpoint.ID
	// first is the checkpoint id of the insert, commits are those of every commit so far,
	// with the sequence that each made.
	first   checkpoint.ID
	commits map[checkpoint.ID]int64

	wake      time.Time
	token     claim.Token
	claimedAt time.Time
	attempts  int
	abandons  int
	poisonAt  time.Time
	poisonFor string
}

// modelKey is a start key: it belongs to one owner and one graph id.
type modelKey struct {
	owner      backend.Owner
	graph, key string
}

// modelHolder is the run that took a key, and until when it holds it at least.
type modelHolder struct {
	run   string
	until time.Time
}

func newModel() *model {
	return &model{runs: map[string]*modelRun{}, keys: map[modelKey]*modelHolder{}, tokens: map[claim.Token]bool{}}
}

// ids lists the runs, sorted.
func (m *model) ids() []string {
	var ids []string
	for id := range m.runs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// seen is the run if the scope sees it.
func (m *model) seen(scope backend.Scope, id string) *modelRun {
	r := m.runs[id]
	if r == nil {
		return nil
	}
	if owner, one := scope.Owner(); one && owner != r.owner {
		return nil
	}
	return r
}

func isTerminal(s run.Status) bool {
	return s == run.Done || s == run.Failed || s == run.Cancelled
}

// picture is what the store must show.
func (m *model) picture() picture {
	p := picture{Infos: map[string]backend.Info{}, Events: map[string][]run.Event{}}
	for id, r := range m.runs {
		d := r.document
		poison := claim.Poison{At: r.poisonAt, Reason: r.poisonFor}
		p.Runs = append(p.Runs, backend.Summary{
			Run: id, Owner: r.owner, Graph: d.Graph, Status: d.Status, Seq: d.Seq,
			StartedAt: d.StartedAt, UpdatedAt: d.UpdatedAt, FinishedAt: d.FinishedAt,
			Wake: r.wake, ClaimedAt: r.claimedAt, Attempts: r.attempts, Abandons: r.abandons, Poison: poison,
		})
		p.Infos[id] = backend.Info{
			Document: d, Owner: r.owner, Wake: r.wake, ClaimedAt: r.claimedAt, Attempts: r.attempts, Abandons: r.abandons,
			Poison: poison, Type: r.kind, CheckpointID: r.checkpoint,
		}
		p.Events[id] = r.events
	}
	slices.SortFunc(p.Runs, func(a, b backend.Summary) int {
		if !a.StartedAt.Equal(b.StartedAt) {
			return b.StartedAt.Compare(a.StartedAt)
		}
		return strings.Compare(b.Run, a.Run)
	})
	return p
}

// insert is what an insert answers and does.
func (m *model) insert(owner backend.Owner, in backend.Initialization) string {
	d := in.Document
	stored := m.runs[d.ID]
	if stored != nil && stored.owner == owner && stored.first == in.CheckpointID {
		return "replayed"
	}
	key := modelKey{owner, d.Graph.ID, in.Key}
	if in.Key != "" {
		if h := m.keys[key]; h != nil && (!isTerminal(m.runs[h.run].document.Status) || in.Now.Before(h.until)) {
			return "existing " + h.run
		}
	}
	if stored != nil {
		return "conflict"
	}
	r := &modelRun{
		owner: owner, document: d, events: slices.Clone(in.Events), kind: in.Type,
		checkpoint: in.CheckpointID, first: in.CheckpointID, commits: map[checkpoint.ID]int64{in.CheckpointID: in.Document.Seq},
	}
	switch in.Schedule.Kind {
	case checkpoint.ReleaseNow:
		r.wake = in.Now
	case checkpoint.ReleaseAt:
		r.wake = in.Schedule.At
	default:
		r.claimedAt, r.attempts = in.Now, 1
	}
	m.runs[d.ID] = r
	if in.Key != "" {
		m.keys[key] = &modelHolder{run: d.ID, until: in.Now.Add(in.Window)}
	}
	return "stored"
}

// commit is what a commit answers and does.
func (m *model) commit(scope backend.Scope, c backend.Commit) string {
	if c.Document.Seq != c.Expected+1 {
		return "invalid commit"
	}
	r := m.seen(scope, c.Document.ID)
	if r == nil {
		return "not found"
	}
	if c.Document.Graph != r.document.Graph || !c.Document.StartedAt.Equal(r.document.StartedAt) {
		return "invalid commit"
	}
	if r.checkpoint == c.CheckpointID {
		return "replayed"
	}
	if r.token != c.Token || r.document.Seq != c.Expected {
		return fenceAnswer(checkpoint.FenceError{Stored: r.document.Seq, Presented: c.Expected, TokenMatched: r.token == c.Token})
	}
	if r.contradicts(c.Events) {
		return "event conflict"
	}
	r.apply(c.Proposal, c.CheckpointID)
	return "ok"
}

// contradicts reports whether a stored event has the sequence of one of these and other content.
func (r *modelRun) contradicts(events []run.Event) bool {
	for _, e := range events {
		for _, stored := range r.events {
			if stored.Seq == e.Seq && !reflect.DeepEqual(stored, e) {
				return true
			}
		}
	}
	return false
}

// apply is the effect of a commit or a mutation.
func (r *modelRun) apply(p run.Proposal, id checkpoint.ID) {
	r.document, r.kind, r.checkpoint = p.Document, p.Type, id
	r.commits[id] = p.Document.Seq
	for _, e := range p.Events {
		if !slices.ContainsFunc(r.events, func(stored run.Event) bool { return stored.Seq == e.Seq }) {
			r.events = append(r.events, e)
		}
	}
	slices.SortFunc(r.events, func(a, b run.Event) int { return int(a.Seq - b.Seq) })
	r.attempts, r.abandons, r.poisonAt, r.poisonFor = 0, 0, time.Time{}, ""
	r.wake = time.Time{}
	if p.Schedule.Kind == checkpoint.Retain {
		if p.Now.After(r.claimedAt) {
			r.claimedAt = p.Now
		}
		return
	}
	r.token, r.claimedAt = "", time.Time{}
	switch p.Schedule.Kind {
	case checkpoint.ReleaseNow:
		r.wake = p.Now
	case checkpoint.ReleaseAt:
		r.wake = p.Schedule.At
	}
}

// moves are the status moves that a mutation may make.
var moves = map[run.Status][]run.Status{
	run.Running: {run.Running, run.Waiting, run.Done, run.Failed, run.Cancelled},
	run.Waiting: {run.Running, run.Cancelled},
}

// mutate is what a mutation answers and does; called tells whether its function is called.
// propose is nil for no change.
func (m *model) mutate(scope backend.Scope, id string, commit checkpoint.ID, propose func(*run.Document) run.Proposal, fails error) (answer string, called bool) {
	r := m.seen(scope, id)
	if r == nil {
		return "not found", false
	}
	if _, stored := r.commits[commit]; stored {
		return "replayed", false
	}
	if fails != nil {
		return "the function's error", true
	}
	if propose == nil {
		return "unchanged", true
	}
	p := propose(r.document)
	if p.Document.Seq != r.document.Seq+1 || p.Expected != r.document.Seq || p.Schedule.Kind == checkpoint.Retain ||
		!slices.Contains(moves[r.document.Status], p.Document.Status) {
		return "invalid mutation", true
	}
	if r.contradicts(p.Events) {
		return "event conflict", true
	}
	r.apply(p, commit)
	return "committed", true
}

// prunable lists the runs that a prune may delete, sorted.
func (m *model) prunable(p backend.PrunePolicy) []string {
	var ids []string
	for _, id := range m.ids() {
		d := m.runs[id].document
		if isTerminal(d.Status) && d.FinishedAt.Before(p.Before) && (len(p.Statuses) == 0 || slices.Contains(p.Statuses, d.Status)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// forget deletes a run, and the key that pointed at it.
func (m *model) forget(id string) {
	delete(m.runs, id)
	for key, h := range m.keys {
		if h.run == id {
			delete(m.keys, key)
		}
	}
}
