package proptest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// maxRuns bounds how many runs there are at once, so that calls meet.
const maxRuns = 5

// insert starts a run.
func insert(m *machine) (got, want, clause string) {
	m.runs++
	owner := pick(m, "owner", machineOwners...)
	in := opening(fmt.Sprintf("r%d", m.runs), pick(m, "version", m.refs...), m.clock, m.commitID())
	in.Key = pick(m, "key", "", "", "k", "l")
	in.Window = pick(m, "window", 0, time.Second, 2*ttl)
	if m.store.Features().StartClaimed && m.oneIn(4, "claimed") {
		claimed(&in)
	} else if wake := pick(m, "wake", 0, 0, time.Second, -time.Second, tick); wake != 0 {
		in.Schedule = checkpoint.Schedule{Kind: checkpoint.ReleaseAt, At: m.clock.Add(wake)}
	}
	return m.insertOf(owner, in, "inserts")
}

// insertTaken starts a run under an id that is taken.
func insertTaken(m *machine) (got, want, clause string) {
	owner := pick(m, "owner", machineOwners...)
	in := opening(pick(m, "run", m.model.ids()...), m.refs[0], m.clock, m.commitID())
	return m.insertOf(owner, in, "inserts")
}

// insertAgain sends an insert again.
func insertAgain(m *machine) (got, want, clause string) {
	s := pick(m, "insert", m.inserts...)
	return m.insertOf(s.owner, s.in, "inserts again")
}

func (m *machine) insertOf(owner backend.Owner, in backend.Initialization, verb string) (got, want, clause string) {
	id := in.Document.ID
	how := "due " + m.log.at(in.Schedule.At)
	switch {
	case in.Claim != nil:
		how = "claimed"
	case in.Schedule.Kind == checkpoint.ReleaseNow:
		how = "due now"
	}
	if in.Key != "" {
		how += fmt.Sprintf(", key %s for %v", in.Key, in.Window)
	}
	m.log.add("%v %s %s at %s (%s)", owner, verb, id, m.log.at(in.Now), how)
	m.inserts = remember(m.inserts, sentInsert{owner, in})
	inserted, err := m.store.InsertRun(m.ctx, owner, in)
	got = answer(err, "stored")
	switch {
	case err != nil:
	case inserted.Replayed:
		got = "replayed"
	case inserted.Existing:
		got = "existing " + inserted.Run
		m.cov.corner("a start key held")
	}
	if err == nil && !inserted.Existing && inserted.Run != id {
		got = "run " + inserted.Run
	}
	got, want = m.expects(id, got, err, func(o *model) string {
		said := o.insert(owner, in)
		if said == "stored" && in.Claim != nil {
			o.runs[id].token = unheardToken // until its lease is seen
		}
		return said
	})
	m.sentAgain(got, func(m *machine) (string, string, string) { return m.insertOf(owner, in, "inserts again") })
	if got == want && got == "stored" {
		m.judge.wrote(id, in.Document.Seq, false)
		v, misfit := m.startLease(in, inserted.Lease)
		if misfit != "" {
			return misfit, "another lease", "R3"
		}
		if v != nil {
			return "stored (" + v.name + ")", "stored (" + v.name + ")", "R3"
		}
	} else if inserted.Lease != nil {
		return got + " with a lease", want, "R3"
	}
	return got, want, "R1"
}

// startLease holds the lease of an insert against the model, and gives it to a worker.
func (m *machine) startLease(in backend.Initialization, l *claim.Lease) (v *view, misfit string) {
	if (l != nil) != (in.Claim != nil) {
		return nil, fmt.Sprintf("a lease: %v", l != nil)
	}
	if l == nil {
		return nil, ""
	}
	r := m.model.runs[in.Document.ID]
	if l.Token == "" || m.model.tokens[l.Token] {
		return nil, "a token that was issued before"
	}
	m.model.tokens[l.Token], r.token = true, l.Token
	m.judge.leased(*l, 1)
	if l.Run != in.Document.ID || l.Owner != r.owner || l.Seq != 1 || !l.ClaimedAt.Equal(in.Now) || l.Attempt != 1 || l.TTL != in.Claim.TTL {
		return nil, fmt.Sprintf("a lease of %s, sequence %d, attempt %d, claimed at %s", l.Run, l.Seq, l.Attempt, m.log.at(l.ClaimedAt))
	}
	return m.lend(workers[0], *l), ""
}

// draftCommit is what a worker proposes on top of what it believes.
func (m *machine) draftCommit(v *view) sentCommit {
	e := pick(m, "end", toRetain, toRetain, toRetain, toRetain, toNow, toNow, toNow, toAt, toAt, toWaiting, toDone, toFailed)
	now := m.instant()
	p := next(v.document, e, now, m.clock.Add(pick(m, "wake", time.Second, -time.Second, 0)))
	s := sentCommit{scope: backend.System()}
	flaw := ""
	if m.oneIn(8, "flawed") {
		flaw = pick(m, "flaw", "a wrong sequence", "a contradicted event", "another graph version", "a foreign scope", "repeated events")
	}
	switch flaw {
	case "a wrong sequence":
		p = edited(p, func(_ *run.Proposal, d *run.Document) { d.Seq++ })
	case "a contradicted event":
		p.Events = append(p.Events, run.Event{Run: v.lease.Run, Seq: 1, Type: run.EventNodeCompleted, At: m.clock, Step: 1, Node: "other"})
		slices.SortFunc(p.Events, func(a, b run.Event) int { return int(a.Seq - b.Seq) })
	case "another graph version":
		p = edited(p, func(_ *run.Proposal, d *run.Document) { d.Graph.Hash = strings.Repeat("0", 64) })
	case "a foreign scope":
		s.scope = m.scope(v.lease.Run)
	case "repeated events":
		p.Events = append(p.Events, p.Events...)
	}
	s.commit = backend.Commit{Proposal: p, CheckpointID: m.commitID(), Token: v.lease.Token}
	s.name = fmt.Sprintf("%s under %s to %s, sequence %d", v.lease.Run, v.name, e, p.Document.Seq)
	if flaw != "" {
		s.name += ", with " + flaw
	}
	return s
}

// commit is a worker that settles a step.
func commit(m *machine) (got, want, clause string) {
	v := m.view()
	s := m.draftCommit(v)
	lost := m.oneIn(4, "reply lost")
	m.log.add("%s commits %s at %s%s", v.worker, s.name, m.log.at(s.commit.Now), map[bool]string{true: ", and the reply is lost"}[lost])
	if r := m.model.runs[v.lease.Run]; r != nil && r.token != v.lease.Token {
		m.cov.corner("a commit by a zombie")
		if r.document.Seq == s.commit.Expected {
			m.cov.corner("a commit by a zombie at the current sequence")
		}
		if r.token == "" && !isTerminal(r.document.Status) {
			m.cov.corner("a commit by a zombie of a run that nobody holds")
		}
	} else if r != nil && s.commit.Schedule.Kind == checkpoint.Retain && s.commit.Now.Before(r.claimedAt) {
		m.cov.corner("a retain older than the claimed-at")
	}
	m.sent = remember(m.sent, s)
	committed, err := m.store.Commit(m.ctx, s.scope, s.commit)
	got, want = m.committed(s, committed, err)
	switch {
	case lost:
		m.cov.corner("a reply lost")
	case got == "ok" || m.met() && got == "replayed":
		v.believes(s.commit.Document)
	}
	m.sentAgain(got, func(m *machine) (string, string, string) {
		got, want, clause := m.commitOnceMore(s)
		if got == "ok" || got == "replayed" {
			v.believes(s.commit.Document)
		}
		return got, want, clause
	})
	return got, want, "T1"
}

// believes is that a worker knows of a commit of its own.
func (v *view) believes(d *run.Document) {
	if d.Status == run.Running {
		v.document, v.lease.Seq = d, d.Seq
	}
}

// committed is the answer to one commit, and the one it must get.
func (m *machine) committed(s sentCommit, c backend.Committed, err error) (got, want string) {
	got = answer(err, "ok")
	if err == nil && c.Replayed {
		got = "replayed"
	}
	got, want = m.expects(s.commit.Document.ID, got, err, func(o *model) string { return o.commit(s.scope, s.commit) })
	if got == "ok" {
		m.judge.alive(s.commit.Token, "committed")
		m.judge.wrote(s.commit.Document.ID, s.commit.Document.Seq, s.commit.Schedule.Kind != checkpoint.Retain)
	}
	return got, want
}

// commitAgain sends a commit again.
func commitAgain(m *machine) (got, want, clause string) {
	return m.commitOnceMore(pick(m, "commit", m.sent...))
}

func (m *machine) commitOnceMore(s sentCommit) (got, want, clause string) {
	m.log.add("commits again %s", s.name)
	if r := m.model.runs[s.commit.Document.ID]; r != nil && r.document.Seq > s.commit.Document.Seq {
		m.cov.corner("a commit sent again after a newer one")
	}
	committed, err := m.store.Commit(m.ctx, s.scope, s.commit)
	got, want = m.committed(s, committed, err)
	return got, want, "T5"
}

// commitGroup commits for several runs at once.
func commitGroup(m *machine) (got, want, clause string) {
	var names, gots, wants []string
	var sent []sentCommit
	var group []backend.Commit
	for _, v := range m.someViews() {
		s := m.draftCommit(v)
		s.scope = backend.System()
		sent, group = append(sent, s), append(group, s.commit)
		names = append(names, s.name)
		m.sent = remember(m.sent, s)
	}
	m.log.add("commits at once %s", strings.Join(names, "; "))
	answers := m.store.Features().Batches.Commits(m.ctx, backend.System(), group)
	if len(answers) != len(group) {
		return fmt.Sprintf("%d answers", len(answers)), fmt.Sprintf("%d answers", len(group)), "X2"
	}
	for i, s := range sent {
		g, w := m.committed(s, answers[i].Committed, answers[i].Err)
		gots, wants = append(gots, g), append(wants, w)
	}
	return "answers (" + strings.Join(gots, "; ") + ")", "answers (" + strings.Join(wants, "; ") + ")", "T6"
}

// mutation is what a signal or an operator does to a run.
type mutation string

const (
	cancels  mutation = "cancels"
	resumes  mutation = "resolves"
	advances mutation = "advances"
	parks    mutation = "parks"
	finishes mutation = "finishes"
	retains  mutation = "retains"
	nothing  mutation = "does not change"
	errs     mutation = "fails on"
)

// errMutation is what the function of a mutation that errs answers.
var errMutation = errors.New("the function's own error")

// propose is what the mutation proposes, nil for no change.
func (k mutation) propose(now time.Time) func(d *run.Document) run.Proposal {
	switch k {
	case cancels:
		return func(d *run.Document) run.Proposal { return next(d, toCancelled, now, now) }
	case resumes:
		return func(d *run.Document) run.Proposal { return resume(d, now) }
	case advances:
		return func(d *run.Document) run.Proposal {
			if d.Status == run.Waiting {
				return resume(d, now)
			}
			return next(d, toNow, now, now)
		}
	case parks:
		return func(d *run.Document) run.Proposal { return next(d, toWaiting, now, now) }
	case finishes:
		return func(d *run.Document) run.Proposal { return next(d, toDone, now, now) }
	case retains:
		return func(d *run.Document) run.Proposal { return next(d, toRetain, now, now) }
	default:
		return nil
	}
}

// mutate is a signal.
func mutate(m *machine) (got, want, clause string) {
	id := m.run()
	kinds := []mutation{cancels}
	if r := m.model.runs[id]; r != nil {
		switch r.document.Status {
		case run.Running:
			kinds = []mutation{advances, advances, advances, advances, parks, parks, cancels, finishes, nothing, errs, retains}
		case run.Waiting:
			kinds = []mutation{resumes, resumes, resumes, cancels, nothing, errs, finishes}
		}
	}
	s := sentMutation{scope: m.scope(id), run: id, id: m.commitID(), kind: pick(m, "mutation", kinds...), now: m.clock}
	return m.mutation(s, "")
}

// mutateAgain sends a mutation again.
func mutateAgain(m *machine) (got, want, clause string) {
	return m.mutation(pick(m, "mutation", m.mutations...), " again")
}

func (m *machine) mutation(s sentMutation, again string) (got, want, clause string) {
	m.log.add("%s %s%s %s at %s", scopeName(s.scope), s.kind, again, s.run, m.log.at(s.now))
	m.mutations = remember(m.mutations, s)
	var fails error
	if s.kind == errs {
		fails = errMutation
	}
	var before *run.Document
	if r := m.model.runs[s.run]; r != nil {
		before = r.document
	}
	called, wantCalled := false, false
	var misread bool
	answered, err := m.store.MutateRun(m.ctx, s.scope, s.run, s.id, func(current *run.Document) (backend.Mutation, error) {
		called = true
		misread = misread || before == nil || current.Seq != before.Seq || current.Status != before.Status
		decision := backend.Mutation{Value: string(s.id)}
		if propose := s.kind.propose(s.now); propose != nil {
			p := propose(current)
			decision.Proposal = &p
		}
		return decision, fails
	})
	got, want = m.expects(s.run, mutationAnswer(answered, err), err, func(o *model) (said string) {
		said, wantCalled = o.mutate(s.scope, s.run, s.id, s.kind.propose(s.now), fails)
		return said
	})
	m.sentAgain(got, func(m *machine) (string, string, string) { return m.mutation(s, " again") })
	if err == nil {
		got = m.mutated(s, answered, got)
	}
	switch {
	case misread:
		return "a function that was shown another document", "the committed document", "T3"
	case called != wantCalled && !m.met():
		return fmt.Sprintf("%s, function called %v", got, called), fmt.Sprintf("%s, function called %v", want, wantCalled), "T3"
	}
	return got, want, "T3"
}

// mutationAnswer is the answer to a mutation as a word of the transcript.
func mutationAnswer(a backend.Mutated, err error) string {
	switch {
	case err == errMutation: //nolint:errorlint // handed back as it is
		return "the function's error"
	case err != nil:
		return answer(err, "")
	case a.Replayed:
		return "replayed"
	case a.Committed:
		return "committed"
	}
	return "unchanged"
}

// mutated holds what a mutation handed back against the model that it has moved.
func (m *machine) mutated(s sentMutation, a backend.Mutated, said string) string {
	switch {
	case m.model.runs[s.run] == nil:
		return "an answer for an absent run"
	case a.Document == nil || a.Document.ID != s.run || a.Document.Seq != m.model.runs[s.run].document.Seq:
		return "a document that is not the run's"
	case !a.Replayed && a.Value != string(s.id):
		return "a value that is not the function's"
	}
	if said == "committed" {
		m.judge.wrote(s.run, a.Document.Seq, false)
		m.judge.end(s.run, "revoked by a mutation")
	}
	return said
}

// prune deletes finished runs.
func prune(m *machine) (got, want, clause string) {
	var ends []time.Time
	for _, id := range m.model.ids() {
		if d := m.model.runs[id].document; !d.FinishedAt.IsZero() {
			ends = append(ends, d.FinishedAt.Add(tick), d.FinishedAt)
		}
	}
	p := backend.PrunePolicy{Before: pick(m, "before", append(ends, m.clock)...), Limit: pick(m, "limit", 1, 2), DryRun: m.oneIn(4, "dry run")}
	if m.oneIn(3, "by status") {
		p.Statuses = []run.Status{pick(m, "status", run.Done, run.Failed, run.Cancelled)}
	}
	m.log.add("prunes up to %d before %s (statuses %v, dry run %v)", p.Limit, m.log.at(p.Before), p.Statuses, p.DryRun)
	may := m.model.prunable(p)
	pruned, err := m.store.Features().Retention.Prune(m.ctx, p)
	if err != nil {
		return answer(err, ""), "a count", "X7"
	}
	n, events := min(p.Limit, len(may)), 0
	// Which of them go is not said; the store shows it.
	for _, id := range may {
		if _, err := m.store.InspectRun(m.ctx, backend.System(), id); errors.Is(err, backend.ErrNotFound) {
			events += len(m.model.runs[id].events)
			m.model.forget(id)
			m.judge.deleted[id] = true
			m.judge.forget(id)
			n--
		}
	}
	got = fmt.Sprintf("deleted (%d runs, %d events)", pruned.Runs, pruned.Events)
	want = fmt.Sprintf("deleted (%d runs, %d events)", min(p.Limit, len(may)), events)
	switch {
	case p.DryRun && n != min(p.Limit, len(may)):
		return "a dry run that deleted", "nothing", "X7"
	case p.DryRun:
		got, want = fmt.Sprintf("would delete (%d runs)", pruned.Runs), fmt.Sprintf("would delete (%d runs)", n)
	case n != 0:
		return fmt.Sprintf("%d runs that should be gone are there", n), "gone", "X7"
	case len(may) > p.Limit != pruned.More && len(may) != p.Limit:
		return fmt.Sprintf("more %v", pruned.More), fmt.Sprintf("more %v", len(may) > p.Limit), "X7"
	}
	return got, want, "X7"
}

// publish stores a graph version, a new one or one that is there.
func publish(m *machine) (got, want, clause string) {
	owner, version := pick(m, "owner", machineOwners...), pick(m, "version", 0, 1, 2, 3)
	ref, raw := published("proof", version)
	m.log.add("%v publishes version %d", owner, version)
	err := m.store.SaveGraph(m.ctx, owner, ref, raw)
	if s := (savedGraph{owner, ref}); err == nil && !slices.Contains(m.saved, s) {
		m.saved = append(m.saved, s)
	}
	return answer(err, "ok"), "ok", "G1"
}

// passes lets time pass, mostly to where something changes.
func passes(m *machine) (got, want, clause string) {
	choices := []time.Time{m.clock.Add(time.Second), m.clock.Add(ttl)}
	for _, c := range m.corners() {
		if c.After(m.clock) {
			choices = append(choices, c, c)
		}
	}
	m.clock = pick(m, "clock", choices...)
	m.log.add("time passes")
	now := "now (" + m.log.at(m.clock) + ")"
	return now, now, "A3"
}
