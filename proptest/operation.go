package proptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// operation is one call of a concurrent history: what was asked, what was answered, and
// between which two moments it took effect.
type operation struct {
	worker int
	// name, when set, is the name of the leases of a claim.
	name string
	text string
	// ask calls the store and notes the answer.
	ask    func(ctx context.Context)
	answer string
	// begun and ended are moments of the history's own time; ended is 0 before an answer.
	begun, ended int64
	// deaf says that the worker will not hear the answer.
	deaf bool
	// lost says that nobody heard the answer: the call took effect at some time after it
	// began, or never.
	lost bool
	// fits moves the model by the call, and says whether the model answers as the store did.
	// It knows the answer.
	fits func(m *model) bool
	// judged tells the judge of the answer; before is the model as the call found it. It is
	// not called for a lost one.
	judged func(j *judge, before *model)
	// may are the kinds of changes that the call may make to what the store shows.
	may change
	// took are the runs that a claim is seen to have taken, while it has no answer yet.
	took []string
	// parts, of a call on several runs, are what it did to each; it is judged by them when
	// runs are judged apart.
	parts []*operation
	// run is the run that the call is about; a claim is about those of its parts.
	run string
}

// change is a set of kinds of changes to a run.
type change uint8

const (
	mayCommit change = 1 << iota
	mayClaim
	mayFree
)

// caller is a worker of a concurrent history. It believes what its own calls answered, and
// nobody tells it of the others'.
type caller struct {
	history *history
	number  int
	views   []*view
	commits []sentCommit
}

// history is what the callers of one store share.
type history struct {
	store backend.Store
	refs  []graph.Ref
	start time.Time
	// clock is the virtual clock: the instants of calls lie about it.
	clock func() time.Time
	// name makes a name not used before: a checkpoint id, a run id, a lease.
	name func() int
	// runs are those that calls are about.
	runs []string
	owns func(id string) backend.Owner
}

func (h *history) at(t time.Time) string { return (&transcript{start: h.start}).at(t) }

// choose picks one of n; the first is the plainest.
type choose func(n int, label string) int

func among[V any](c choose, label string, values ...V) V { return values[c(len(values), label)] }

// next draws the worker's next call.
func (w *caller) next(c choose) *operation {
	kinds := []string{"claim", "claim", "claim", "mutate", "inspect", "recover", "insert"}
	if len(w.views) > 0 {
		kinds = append(kinds, "commit", "commit", "commit", "commit", "abandon", "release", "refresh")
	}
	if len(w.commits) > 0 {
		kinds = append(kinds, "commit again")
	}
	now := w.history.clock().Add(among(c, "skew", 0, 0, -time.Second, time.Second))
	switch among(c, "call", kinds...) {
	case "claim":
		return w.claim(claim.Policy{
			Now: now, TTL: among(c, "ttl", ttl, 0, ttl), Limit: among(c, "limit", 1, 2, 5), MaxAttempts: among(c, "max attempts", 3, 2),
			Prefer:   among(c, "prefer", claim.NoClass, claim.Ready, claim.Expired),
			Fairness: among(c, "fairness", claim.OldestFirst, claim.OldestFirst, claim.Interleave),
		})
	case "mutate":
		kind := among(c, "mutation", advances, advances, advances, parks, resumes, cancels)
		return w.mutate(among(c, "run", w.history.runs...), kind, now)
	case "inspect":
		return w.inspect(among(c, "run", w.history.runs...))
	case "recover":
		return w.recover(among(c, "run", w.history.runs...), now)
	case "insert":
		id := among(c, "run", append(w.history.runs, "late")...)
		return w.insert(w.history.owns(id), opening(id, w.history.refs[0], now, checkpointID(w.history.name())))
	case "commit again":
		return w.commit(w.commits[len(w.commits)-1-c(len(w.commits), "commit")], nil)
	}
	v := w.views[len(w.views)-1-c(len(w.views), "lease")]
	switch among(c, "by lease", "commit", "commit", "commit", "abandon", "release", "refresh") {
	case "abandon":
		return w.abandon(v, claim.AbandonPolicy{
			Now: now, ExpectedSeq: v.lease.Seq, MaxAbandons: among(c, "max abandons", 1, 2), RetryAt: now.Add(among(c, "retry-at", 0, time.Second)),
		})
	case "release":
		return w.release(v, claim.ReleasePolicy{Now: now, Refund: c(2, "refund") == 1})
	case "refresh":
		return w.refresh(v, now)
	default:
		e := among(c, "end", toRetain, toRetain, toRetain, toNow, toNow, toWaiting, toDone)
		return w.commit(w.draft(v, e, now), v)
	}
}

// lend keeps a lease, and what the caller will believe of the run.
func (w *caller) lend(name string, l claim.Lease, d *run.Document) {
	if name == "" {
		name = fmt.Sprintf("L%d", w.history.name())
	}
	w.views = remember(w.views, &view{name: name, lease: l, document: d})
}

// claim claims. The worker reads the documents of what it was leased at once after.
func (w *caller) claim(p claim.Policy) *operation {
	c := &operation{worker: w.number, may: mayClaim, text: fmt.Sprintf("claims up to %d at %s (ttl %v, max attempts %d)", p.Limit, w.history.at(p.Now), p.TTL, p.MaxAttempts)}
	var batch claim.Batch
	var err error
	c.ask = func(ctx context.Context) {
		batch, err = w.history.store.ClaimDue(ctx, p)
		sortBatch(&batch)
		var said []string
		for _, l := range batch.Leases {
			d, err := w.history.store.FetchRun(ctx, backend.System(), l.Run)
			if err == nil && d.Seq == l.Seq {
				w.lend(c.name, l, d)
			}
			said = append(said, fmt.Sprintf("%s (attempt %d, sequence %d)", l.Run, l.Attempt, l.Seq))
			c.parts = append(c.parts, leasePart(c, p, l))
		}
		for _, o := range batch.Poisoned {
			said = append(said, "poison "+o.Run)
			c.parts = append(c.parts, poisonPart(c, p, o))
		}
		c.answer = answer(err, strings.Join(said, ", "))
		if err == nil && len(said) == 0 {
			c.answer = "nothing"
		}
		if c.lost = unheard(err); c.lost {
			for _, id := range append(slices.Clone(w.history.runs), "late") {
				c.parts = append(c.parts, lostPart(c, p, id))
			}
		}
	}
	c.fits = func(m *model) bool {
		if c.ended == 0 {
			for _, id := range c.took {
				m.launch(id, p)
				m.runs[id].token = "of a claim without an answer"
			}
			return true
		}
		if err != nil || !batch.Now.Equal(p.Now) {
			return false
		}
		var taken []string
		for _, part := range c.parts {
			taken = append(taken, part.run)
		}
		slices.Sort(taken)
		if m.misfit(m.due(p), p, taken) != "" || p.Fairness == claim.Interleave && !servesBoth(m, p, taken) {
			return false
		}
		for _, part := range c.parts {
			if !part.fits(m) {
				return false
			}
		}
		return true
	}
	c.judged = func(j *judge, before *model) {
		var taken []string
		for _, part := range c.parts {
			taken = append(taken, part.run)
			part.judged(j, before)
		}
		j.served(before.picture(), p, taken)
	}
	return c
}

// servesBoth holds C12 against an interleaved batch, for which the model has several right
// answers.
func servesBoth(m *model, p claim.Policy, taken []string) bool {
	j := newJudge()
	j.served(m.picture(), p, taken)
	return len(j.verdicts) == 0
}

// leasePart is what a claim did to a run that it leased.
func leasePart(c *operation, p claim.Policy, l claim.Lease) *operation {
	return &operation{
		worker: c.worker, run: l.Run, text: c.text, answer: fmt.Sprintf("a lease of %s, attempt %d", l.Run, l.Attempt),
		fits: func(m *model) bool {
			if !isDue(m, p, l.Run) || m.launch(l.Run, p) {
				return false
			}
			r := m.runs[l.Run]
			r.token = l.Token
			return l.Attempt == r.attempts && l.Seq == r.document.Seq && l.ClaimedAt.Equal(p.Now) && l.Owner == r.owner
		},
		judged: func(j *judge, _ *model) { j.leased(l, p.MaxAttempts) },
	}
}

// poisonPart is what a claim did to a run that it poisoned.
func poisonPart(c *operation, p claim.Policy, o claim.PoisonedRun) *operation {
	return &operation{
		worker: c.worker, run: o.Run, text: c.text, answer: "poison " + o.Run,
		fits:   func(m *model) bool { return isDue(m, p, o.Run) && m.launch(o.Run, p) && o.Poison.At.Equal(p.Now) },
		judged: func(j *judge, _ *model) { j.end(o.Run, "poisoned") },
	}
}

// lostPart is what a claim without an answer may have done to a run.
func lostPart(c *operation, p claim.Policy, id string) *operation {
	return &operation{
		worker: c.worker, run: id, text: c.text, answer: c.answer, lost: true,
		fits: func(m *model) bool {
			if isDue(m, p, id) && !m.launch(id, p) {
				m.runs[id].token = "of a claim without an answer"
			}
			return true
		},
	}
}

func isDue(m *model, p claim.Policy, id string) bool {
	return slices.ContainsFunc(m.due(p), func(d modelDue) bool { return d.id == id })
}

// draft is a commit of what the worker believes.
func (w *caller) draft(v *view, e end, now time.Time) sentCommit {
	return sentCommit{
		name: fmt.Sprintf("%s under %s to %s", v.lease.Run, v.name, e), scope: backend.System(),
		commit: backend.Commit{Proposal: next(v.document, e, now, now), CheckpointID: checkpointID(w.history.name()), Token: v.lease.Token},
	}
}

// commit sends a commit, of a view or once more.
func (w *caller) commit(s sentCommit, v *view) *operation {
	d := s.commit.Document
	c := &operation{
		worker: w.number, run: d.ID, may: mayCommit,
		text: fmt.Sprintf("commits %s, sequence %d at %s", s.name, d.Seq, w.history.at(s.commit.Now)),
	}
	if v == nil {
		c.text = strings.Replace(c.text, "commits", "commits again", 1)
	} else {
		w.commits = remember(w.commits, s)
	}
	c.ask = func(ctx context.Context) {
		committed, err := w.history.store.Commit(ctx, s.scope, s.commit)
		c.answer = answer(err, "ok")
		switch {
		case err == nil && committed.Replayed:
			c.answer = "replayed"
		case err == nil && v != nil && d.Status == run.Running && !c.deaf:
			v.document, v.lease.Seq = d, d.Seq
		}
		c.lost = unheard(err)
	}
	c.fits = func(m *model) bool { return alike(c.answer, m.commit(s.scope, s.commit)) }
	c.judged = func(j *judge, _ *model) {
		if c.answer == "ok" {
			j.alive(s.commit.Token, "committed")
			j.wrote(d.ID, d.Seq, s.commit.Schedule.Kind != checkpoint.Retain)
		}
	}
	return c
}

// alike compares two answers. What a stale fence tells beyond that it is stale may be of any
// later moment.
func alike(got, want string) bool {
	const stale = "stale fence"
	return got == want || strings.HasPrefix(got, stale) && strings.HasPrefix(want, stale)
}

// unheard reports whether an error leaves it open whether the call took effect.
func unheard(err error) bool { return err != nil && backend.Classify(err) != backend.Permanent }

func (w *caller) refresh(v *view, now time.Time) *operation {
	l := v.lease
	c := &operation{worker: w.number, run: l.Run, text: fmt.Sprintf("refreshes %s of %s at %s", v.name, l.Run, w.history.at(now))}
	c.ask = func(ctx context.Context) {
		err := w.history.store.RefreshClaim(ctx, l.Run, l.Token, now)
		c.answer, c.lost = answer(err, "ok"), unheard(err)
	}
	c.fits = func(m *model) bool { return c.answer == m.refresh(l.Run, l.Token, now) }
	c.judged = func(j *judge, _ *model) {
		if c.answer == "ok" {
			j.alive(l.Token, "refreshed")
		}
	}
	return c
}

func (w *caller) release(v *view, p claim.ReleasePolicy) *operation {
	l := v.lease
	c := &operation{worker: w.number, run: l.Run, text: fmt.Sprintf("releases %s of %s at %s (refund %v)", v.name, l.Run, w.history.at(p.Now), p.Refund)}
	c.ask = func(ctx context.Context) {
		err := w.history.store.ReleaseClaim(ctx, l.Run, l.Token, p)
		c.answer, c.lost = answer(err, "ok"), unheard(err)
	}
	c.fits = func(m *model) bool { return c.answer == m.release(l.Run, l.Token, p) }
	c.judged = func(j *judge, before *model) {
		if before.holds(l.Run, l.Token) {
			j.end(l.Run, "released")
			if p.Refund {
				j.gaveBack(l.Run)
			}
		}
	}
	return c
}

func (w *caller) abandon(v *view, p claim.AbandonPolicy) *operation {
	l := v.lease
	c := &operation{
		worker: w.number, run: l.Run,
		text: fmt.Sprintf("abandons %s of %s at %s (max %d, retry-at %s)", v.name, l.Run, w.history.at(p.Now), p.MaxAbandons, w.history.at(p.RetryAt)),
	}
	var d claim.Disposition
	c.ask = func(ctx context.Context) {
		var err error
		d, err = w.history.store.AbandonClaim(ctx, l.Run, l.Token, p)
		c.answer, c.lost = answer(err, map[claim.Disposition]string{claim.Stale: "stale", claim.Rescheduled: "rescheduled", claim.Poisoned: "poisoned"}[d]), unheard(err)
	}
	c.fits = func(m *model) bool { return c.answer == m.abandon(l.Run, l.Token, p) }
	c.judged = func(j *judge, _ *model) {
		if d != claim.Stale {
			j.alive(l.Token, "abandoned")
			j.abandoned(l.Run, d, p)
		}
	}
	return c
}

func (w *caller) recover(id string, now time.Time) *operation {
	c := &operation{worker: w.number, run: id, may: mayFree, text: fmt.Sprintf("recovers %s at %s", id, w.history.at(now))}
	c.ask = func(ctx context.Context) {
		err := w.history.store.RetryPoisonedRun(ctx, backend.System(), id, now)
		c.answer, c.lost = answer(err, "ok"), unheard(err)
	}
	c.fits = func(m *model) bool { return c.answer == m.recover(backend.System(), id, now) }
	c.judged = func(j *judge, before *model) {
		if c.answer == "ok" {
			j.recovered(id, before.picture().Infos[id])
		}
	}
	return c
}

// mutate signals a run, in the scope of its owner.
func (w *caller) mutate(id string, kind mutation, now time.Time) *operation {
	commit, scope := checkpointID(w.history.name()), backend.Of(w.history.owns(id))
	c := &operation{worker: w.number, run: id, may: mayCommit | mayFree, text: fmt.Sprintf("%s %s at %s", kind, id, w.history.at(now))}
	propose := kind.propose(now)
	var after *run.Document
	c.ask = func(ctx context.Context) {
		m, err := w.history.store.MutateRun(ctx, scope, id, commit, func(current *run.Document) (backend.Mutation, error) {
			if !fitting(kind, current.Status) {
				return backend.Mutation{}, nil
			}
			p := propose(current)
			return backend.Mutation{Proposal: &p}, nil
		})
		after = m.Document
		c.answer, c.lost = answer(err, "unchanged"), unheard(err)
		switch {
		case err != nil:
		case m.Replayed:
			c.answer = "replayed"
		case m.Committed:
			c.answer = "committed"
		}
	}
	c.fits = func(m *model) bool {
		r := m.seen(scope, id)
		propose := propose
		if r != nil && !fitting(kind, r.document.Status) {
			propose = nil
		}
		want, _ := m.mutate(scope, id, commit, propose, nil)
		if c.answer == want && r != nil && after != nil {
			return after.Seq == r.document.Seq && after.Status == r.document.Status
		}
		return c.answer == want
	}
	c.judged = func(j *judge, _ *model) {
		if c.answer == "committed" {
			j.wrote(id, after.Seq, false)
			j.end(id, "revoked by a mutation")
		}
	}
	return c
}

// fitting says whether a signal of the kind does anything to a run of that status.
func fitting(kind mutation, s run.Status) bool {
	switch s {
	case run.Running:
		return kind != resumes
	case run.Waiting:
		return kind == resumes || kind == cancels || kind == advances
	}
	return false
}

// inspect reads a run.
func (w *caller) inspect(id string) *operation {
	c := &operation{worker: w.number, run: id, text: "inspects " + id}
	var info backend.Info
	c.ask = func(ctx context.Context) {
		var err error
		info, err = w.history.store.InspectRun(ctx, backend.Of(w.history.owns(id)), id)
		c.answer = answer(err, "")
		if err == nil {
			c.answer = fmt.Sprintf("%s, sequence %d, wake %s, claimed at %s, attempts %d, abandons %d", info.Document.Status, info.Document.Seq,
				w.history.at(info.Wake), w.history.at(info.ClaimedAt), info.Attempts, info.Abandons)
		}
		c.lost = unheard(err)
	}
	c.fits = func(m *model) bool {
		r := m.runs[id]
		if r == nil {
			return c.answer == "not found"
		}
		return info.Document != nil && showsRun(info, r)
	}
	c.judged = func(*judge, *model) {}
	return c
}

// showsRun compares what a read shows of a run with the model. The checkpoint id names the
// commit, and with it the document.
func showsRun(i backend.Info, r *modelRun) bool {
	return i.CheckpointID == r.checkpoint && i.Document.Seq == r.document.Seq && i.Document.Status == r.document.Status &&
		i.Wake.Equal(r.wake) && i.ClaimedAt.Equal(r.claimedAt) && i.Attempts == r.attempts && i.Abandons == r.abandons &&
		i.Poison.At.Equal(r.poisonAt) && i.Poison.Reason == r.poisonFor && i.Type == r.kind && i.Owner == r.owner
}

// insert starts a run, which another worker may start too.
func (w *caller) insert(owner backend.Owner, in backend.Initialization) *operation {
	id := in.Document.ID
	c := &operation{worker: w.number, run: id, text: fmt.Sprintf("%v inserts %s at %s", owner, id, w.history.at(in.Now))}
	c.ask = func(ctx context.Context) {
		inserted, err := w.history.store.InsertRun(ctx, owner, in)
		c.answer, c.lost = answer(err, "stored"), unheard(err)
		switch {
		case err != nil:
		case inserted.Replayed:
			c.answer = "replayed"
		case inserted.Existing:
			c.answer = "existing " + inserted.Run
		}
	}
	c.fits = func(m *model) bool { return c.answer == m.insert(owner, in) }
	c.judged = func(j *judge, _ *model) {
		if c.answer == "stored" {
			j.wrote(id, in.Document.Seq, false)
		}
	}
	return c
}
