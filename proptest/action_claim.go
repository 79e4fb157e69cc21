package proptest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

// policy draws what one claim may take.
func (m *machine) policy() claim.Policy {
	p := claim.Policy{
		Now:         m.instant(),
		TTL:         pick(m, "ttl", ttl, ttl, ttl, 0, 2*ttl),
		Limit:       pick(m, "limit", 1, 2, 3, 2, 5),
		MaxAttempts: pick(m, "max attempts", 2, 1, 3),
		Prefer:      pick(m, "prefer", claim.NoClass, claim.Ready, claim.Expired),
	}
	if m.oneIn(4, "interleave") {
		p.Fairness = claim.Interleave
	}
	f := m.store.Features()
	if f.ClaimFilter && m.oneIn(5, "filter") {
		switch pick(m, "filter by", "graph", "version", "run") {
		case "graph":
			p.Filter.Graphs = []claim.GraphFilter{{ID: pick(m, "graph", "proof", "absent")}}
		case "version":
			ref := pick(m, "version", m.refs...)
			p.Filter.Graphs = []claim.GraphFilter{{ID: ref.ID, Hash: ref.Hash}}
		default:
			p.Filter.Runs = []string{m.run()}
		}
	}
	if f.OwnerCap && m.oneIn(5, "cap") {
		p.OwnerCap = pick(m, "owner cap", 1, 2)
	}
	return p
}

// policyText is a policy as the transcript tells it.
func (m *machine) policyText(p claim.Policy) string {
	var b strings.Builder
	fmt.Fprintf(&b, "up to %d at %s (ttl %v, max attempts %d", p.Limit, m.log.at(p.Now), p.TTL, p.MaxAttempts)
	if p.Prefer != claim.NoClass {
		fmt.Fprintf(&b, ", prefer %v", p.Prefer)
	}
	if p.Fairness == claim.Interleave {
		b.WriteString(", interleaved")
	}
	if p.OwnerCap > 0 {
		fmt.Fprintf(&b, ", cap %d", p.OwnerCap)
	}
	for _, g := range p.Filter.Graphs {
		fmt.Fprintf(&b, ", only graph %s %.6s", g.ID, g.Hash)
	}
	for _, id := range p.Filter.Runs {
		fmt.Fprintf(&b, ", only run %s", id)
	}
	return b.String() + ")"
}

// claims is a claim by a worker, with or without documents.
func claims(withDocuments bool) func(m *machine) (got, want, clause string) {
	return func(m *machine) (got, want, clause string) {
		worker := pick(m, "worker", workers...)
		p := m.policy()
		how := ""
		if withDocuments {
			how = " with documents"
		}
		m.log.add("%s claims%s %s", worker, how, m.policyText(p))
		due := m.model.due(p)
		m.meet(due, p)
		batch, documents, err := m.callClaim(p, withDocuments)
		if err != nil && m.met() && backend.Classify(err) != backend.Permanent {
			return m.unheardClaim(err, p, due)
		}
		if err != nil {
			return answer(err, ""), "a batch", "K1"
		}
		if !batch.Now.Equal(p.Now) {
			return fmt.Sprintf("now is %s", m.log.at(batch.Now)), "now is " + m.log.at(p.Now), "A3"
		}
		var taken []string
		for _, id := range outcomes(batch) {
			taken = append(taken, strings.TrimPrefix(id, "poison:"))
		}
		slices.Sort(taken)
		if len(slices.Compact(slices.Clone(taken))) != len(taken) {
			return fmt.Sprintf("took %v", taken), "no run twice", "C2"
		}
		m.judge.served(m.before, p, taken)
		if misfit := m.model.misfit(due, p, taken); misfit != "" {
			clause, text, _ := strings.Cut(misfit, ": ")
			return text, "another selection", clause
		}
		return m.outcomes(worker, p, batch, documents, due)
	}
}

// callClaim claims. documents is nil without them, else index for index with the leases.
func (m *machine) callClaim(p claim.Policy, withDocuments bool) (claim.Batch, map[string]backend.ClaimedDocument, error) {
	if !withDocuments {
		batch, err := m.store.ClaimDue(m.ctx, p)
		sortBatch(&batch)
		return batch, nil, err
	}
	claimed, err := m.store.Features().ClaimDocuments.ClaimDueDocuments(m.ctx, p)
	if err == nil && len(claimed.Documents) != len(claimed.Leases) {
		err = fmt.Errorf("%d leases came with %d documents", len(claimed.Leases), len(claimed.Documents))
	}
	if err != nil {
		return claim.Batch{}, nil, err
	}
	documents := map[string]backend.ClaimedDocument{}
	for i, l := range claimed.Leases {
		documents[l.Run] = claimed.Documents[i]
	}
	sortBatch(&claimed.Batch)
	return claimed.Batch, documents, nil
}

// outcomes holds each outcome of a batch against the model, and gives the leases to the worker.
func (m *machine) outcomes(worker string, p claim.Policy, batch claim.Batch, documents map[string]backend.ClaimedDocument, due []modelDue) (got, want, clause string) {
	var texts []string
	class := func(id string) claim.Class {
		if i := slices.IndexFunc(due, func(d modelDue) bool { return d.id == id }); due[i].expired {
			return claim.Expired
		}
		return claim.Ready
	}
	for _, l := range batch.Leases {
		if poisoned := m.model.launch(l.Run, p); poisoned {
			return "a lease of " + l.Run, "poison", "K3"
		}
		r := m.model.runs[l.Run]
		if l.Token == "" || m.model.tokens[l.Token] {
			return "a token of " + l.Run + " that was issued before", "a fresh token", "A7"
		}
		m.model.tokens[l.Token], r.token = true, l.Token
		m.judge.leased(l, p.MaxAttempts)
		lease := claim.Lease{
			Run: l.Run, Owner: r.owner, GraphID: r.document.Graph.ID, GraphHash: r.document.Graph.Hash, Seq: r.document.Seq,
			Token: l.Token, ClaimedAt: p.Now, Attempt: r.attempts, TTL: p.TTL, Class: class(l.Run),
		}
		if diff := cmp.Diff(lease, l, comparison); diff != "" {
			return "a lease that is not what it must be (- must, + is):\n" + diff, "another lease", "K3"
		}
		if documents != nil {
			if d := documents[l.Run]; d.Err != nil || !cmp.Equal(d.Document, r.document, comparison) {
				return fmt.Sprintf("a lease of %s with a document that is not the committed one (%v)", l.Run, d.Err), "the committed document", "K6"
			}
		}
		v := m.lend(worker, l)
		texts = append(texts, fmt.Sprintf("%s = %s, attempt %d", v.name, l.Run, l.Attempt))
	}
	for _, o := range batch.Poisoned {
		if poisoned := m.model.launch(o.Run, p); !poisoned {
			return "poison of " + o.Run, "a lease", "K3"
		}
		m.judge.end(o.Run, "poisoned")
		m.cov.corner("attempts at the maximum")
		r := m.model.runs[o.Run]
		poison := claim.PoisonedRun{
			Run: o.Run, Owner: r.owner, GraphID: r.document.Graph.ID, GraphHash: r.document.Graph.Hash,
			Poison: claim.Poison{At: r.poisonAt, Reason: r.poisonFor},
		}
		if diff := cmp.Diff(poison, o, comparison); diff != "" {
			return "a poison that is not what it must be (- must, + is):\n" + diff, "another poison", "K3"
		}
		texts = append(texts, "poison "+o.Run)
	}
	text := "nothing"
	if len(texts) > 0 {
		text = "outcomes (" + strings.Join(texts, "; ") + ")"
	}
	return text, text, "K2"
}

// lend gives a lease to a worker, who believes from then on what the store held.
func (m *machine) lend(worker string, l claim.Lease) *view {
	m.leases++
	v := &view{name: fmt.Sprintf("L%d", m.leases), worker: worker, lease: l, document: m.model.runs[l.Run].document}
	m.views = remember(m.views, v)
	m.log.names[l.Token] = v.name
	return v
}

// meet counts the corners that a claim meets.
func (m *machine) meet(due []modelDue, p claim.Policy) {
	ready, expired := 0, 0
	for i, d := range due {
		if d.expired {
			expired++
		} else {
			ready++
		}
		if i > 0 && due[i-1].since.Equal(d.since) {
			m.cov.corner("two runs eligible since the same instant")
		}
		if d.expired && p.Now.Sub(d.since) == p.TTL+tick {
			m.cov.corner("a claim one microsecond past its TTL")
		}
		if !d.expired && d.since.Equal(p.Now) {
			m.cov.corner("a wake exactly reached")
		}
	}
	for _, id := range m.model.ids() {
		r := m.model.runs[id]
		if r.token != "" && p.Now.Sub(r.claimedAt) == p.TTL {
			m.cov.corner("a claim exactly at its TTL")
		}
		if r.wake.Equal(p.Now.Add(tick)) {
			m.cov.corner("a wake one microsecond ahead")
		}
	}
	switch {
	case ready > 0 && expired > 0 && p.Limit == 1 && p.Prefer != claim.NoClass:
		m.cov.corner("both classes due, a limit of 1, a preference")
	case ready > 0 && expired > 0 && len(due) > p.Limit:
		m.cov.corner("both classes due, more than the limit")
	case p.Limit == 1 && (ready == 0 && expired > 0 && p.Prefer == claim.Ready || expired == 0 && ready > 0 && p.Prefer == claim.Expired):
		m.cov.corner("the preferred class empty")
	}
}

// refresh is a worker's heartbeat.
func refresh(m *machine) (got, want, clause string) {
	v, now := m.view(), m.instant()
	m.log.add("%s refreshes %s of %s at %s", v.worker, v.name, v.lease.Run, m.log.at(now))
	if m.model.holds(v.lease.Run, v.lease.Token) && now.Before(m.model.runs[v.lease.Run].claimedAt) {
		m.cov.corner("a refresh older than the claimed-at")
	}
	err := m.store.RefreshClaim(m.ctx, v.lease.Run, v.lease.Token, now)
	if err == nil {
		m.judge.alive(v.lease.Token, "refreshed")
	}
	got, want = m.expects(v.lease.Run, answer(err, "ok"), err, func(o *model) string { return o.refresh(v.lease.Run, v.lease.Token, now) })
	return got, want, "K7"
}

// refreshAll is a heartbeat for everything that one batch of views believes to hold.
func refreshAll(m *machine) (got, want, clause string) {
	now := m.instant()
	views := m.someViews()
	var names, gots, wants []string
	var held []backend.Held
	for _, v := range views {
		names = append(names, v.name)
		held = append(held, backend.Held{Run: v.lease.Run, Token: v.lease.Token})
	}
	m.log.add("refreshes at once %s at %s", strings.Join(names, ", "), m.log.at(now))
	answers := m.store.Features().Batches.RefreshClaims(m.ctx, held, now)
	if len(answers) != len(held) {
		return fmt.Sprintf("%d answers", len(answers)), fmt.Sprintf("%d answers", len(held)), "X2"
	}
	for i, v := range views {
		if answers[i] == nil {
			m.judge.alive(v.lease.Token, "refreshed")
		}
		got, want := m.expects(v.lease.Run, answer(answers[i], "ok"), answers[i], func(o *model) string { return o.refresh(v.lease.Run, v.lease.Token, now) })
		gots, wants = append(gots, got), append(wants, want)
	}
	return "answers (" + strings.Join(gots, "; ") + ")", "answers (" + strings.Join(wants, "; ") + ")", "X2"
}

// release is a worker that gives a run back.
func release(m *machine) (got, want, clause string) {
	v := m.view()
	p := claim.ReleasePolicy{Now: m.instant(), Refund: m.oneIn(2, "refund"), After: pick(m, "after", 0, 0, time.Second)}
	m.log.add("%s releases %s of %s at %s (after %v, refund %v)", v.worker, v.name, v.lease.Run, m.log.at(p.Now), p.After, p.Refund)
	err := m.store.ReleaseClaim(m.ctx, v.lease.Run, v.lease.Token, p)
	if err == nil && m.judge.held[v.lease.Run] == v.lease.Token {
		m.judge.end(v.lease.Run, "released")
		if p.Refund {
			m.judge.gaveBack(v.lease.Run)
		}
	}
	got, want = m.expects(v.lease.Run, answer(err, "ok"), err, func(o *model) string { return o.release(v.lease.Run, v.lease.Token, p) })
	return got, want, "K8"
}

// abandon is a worker that cannot begin.
func abandon(m *machine) (got, want, clause string) {
	v := m.view()
	for _, other := range m.views {
		if r := m.model.runs[other.lease.Run]; m.model.holds(other.lease.Run, other.lease.Token) && r.abandons > 0 && m.oneIn(2, "abandoned before") {
			v = other
		}
	}
	p := claim.AbandonPolicy{
		Now:         m.instant(),
		ExpectedSeq: v.lease.Seq + pick(m, "sequence", int64(0), 0, 0, 0, 1, -1),
		MaxAbandons: pick(m, "max abandons", 1, 1, 2),
	}
	switch pick(m, "wake by", "retry-at", "retry-after", "nothing", "never-poison", "backoff") {
	case "retry-at":
		p.RetryAt = p.Now.Add(pick(m, "retry-at", 0, time.Second, ttl))
	case "retry-after":
		p.RetryAfter = time.Second
	case "never-poison":
		p.NeverPoison, p.RetryAt = true, p.Now.Add(time.Second)
	case "backoff":
		p.NeverPoison, p.RetryAt = true, p.Now
		p.Backoff = claim.Backoff{Base: time.Second, Cap: pick(m, "cap", 3*time.Second, time.Second)}
	}
	m.log.add("%s abandons %s of %s at %s (expects %d, max %d, retry-at %s, after %v, never poison %v, backoff %v to %v)",
		v.worker, v.name, v.lease.Run, m.log.at(p.Now), p.ExpectedSeq, p.MaxAbandons, m.log.at(p.RetryAt), p.RetryAfter, p.NeverPoison, p.Backoff.Base, p.Backoff.Cap)
	d, err := m.store.AbandonClaim(m.ctx, v.lease.Run, v.lease.Token, p)
	got = answer(err, map[claim.Disposition]string{claim.Stale: "stale", claim.Rescheduled: "rescheduled", claim.Poisoned: "poisoned"}[d])
	if err == nil && d != claim.Stale {
		m.judge.alive(v.lease.Token, "abandoned")
		m.judge.abandoned(v.lease.Run, d, p)
	}
	if got == "poisoned" {
		m.cov.corner("abandons at the maximum")
	}
	got, want = m.expects(v.lease.Run, got, err, func(o *model) string { return o.abandon(v.lease.Run, v.lease.Token, p) })
	return got, want, "K9"
}

// recovers is an operator who frees a poisoned run.
func recovers(m *machine) (got, want, clause string) {
	id := m.run()
	scope, now := m.scope(id), m.instant()
	m.log.add("%s recovers %s at %s", scopeName(scope), id, m.log.at(now))
	err := m.store.RetryPoisonedRun(m.ctx, scope, id, now)
	if err == nil {
		m.judge.recovered(id, m.before.Infos[id])
	}
	got, want = m.expects(id, answer(err, "ok"), err, func(o *model) string { return o.recover(scope, id, now) })
	return got, want, "K10"
}

// view draws what a worker believes: half the time something true, else the latest first
// and zombies of every age behind it.
func (m *machine) view() *view {
	var live []*view
	for _, v := range m.views {
		if m.model.holds(v.lease.Run, v.lease.Token) {
			live = append(live, v)
		}
	}
	if len(live) > 0 && !m.oneIn(2, "any lease") {
		return pick(m, "live lease", live...)
	}
	latest := slices.Clone(m.views)
	slices.Reverse(latest)
	return rapid.SampledFrom(latest).Draw(m.rt, "lease")
}

// someViews draws up to three views of different runs.
func (m *machine) someViews() []*view {
	var views []*view
	for range pick(m, "members", 2, 3) {
		v := m.view()
		if !slices.ContainsFunc(views, func(o *view) bool { return o.lease.Run == v.lease.Run }) {
			views = append(views, v)
		}
	}
	return views
}
