package proptest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// Player makes calls that are written down, one a line, on one store: a counterexample that is worth
// keeping. A call is a verb, what it is about, and settings; instants are told from the history's start,
// and leases are named L1, L2 and so on as they are given out:
//
//	insert r1 owner=acme wake=1s key=k window=1h version=1 claimed
//	claim limit=2 at=1s ttl=1m max=3 prefer=expired interleave cap=1 only-version=1 only-run=r1 counted
//	commit L1 retain at=2s wake=1h id=c1      the end is retain, release-now, release-at, waiting, done, failed or cancelled
//	commit-again c1
//	insert-again r1
//	refresh L1 at=2s
//	release L1 at=2s after=1s refund
//	abandon L1 at=2s max=1 retry-at=3s after=1s never-poison base=1s cap=1m seq=1
//	mutate r1 cancels at=2s id=m1             it cancels, resolves, advances, parks or finishes
//	recover r1 at=2s
//	prune before=1h limit=10
//	lock r1
//	unlock r1
//	show
//
// A counted claim says how many outcomes it had and not which, where several are right.
// Everything that is left out has a default: the start, the tenantless owner, a limit of 10, a maximum of 3.
type Player struct {
	t     T
	ctx   context.Context
	o     Opened
	start time.Time
	refs  []graph.Ref

	leases  map[string]*view
	owners  map[string]backend.Owner
	commits map[string]backend.Commit
	inserts map[string]backend.Initialization
	unlocks map[string]func()
	named   int
	ids     int
}

// NewPlayer is a player on a store that is empty.
func NewPlayer(t T, o Opened) *Player {
	t.Helper()
	p := &Player{
		t: t, ctx: context.Background(), o: o, start: time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC),
		leases: map[string]*view{}, owners: map[string]backend.Owner{}, commits: map[string]backend.Commit{},
		inserts: map[string]backend.Initialization{}, unlocks: map[string]func(){},
	}
	for version := range 2 {
		ref, raw := published("proof", version)
		p.refs = append(p.refs, ref)
		for _, owner := range machineOwners {
			if err := o.Store.SaveGraph(p.ctx, owner, ref, raw); err != nil {
				t.Fatalf("SaveGraph: %v", err)
			}
		}
	}
	t.Cleanup(func() {
		for _, unlock := range p.unlocks {
			unlock()
		}
	})
	return p
}

// Play makes the calls of some lines and answers those lines, each with what the store said, as the input
// and the output of a datadriven test. A line that is no call ends the test.
func (p *Player) Play(lines string) string {
	p.t.Helper()
	var b strings.Builder
	for line := range strings.Lines(lines) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			fmt.Fprintf(&b, "%s -> %s\n", line, p.call(line))
		}
	}
	return b.String()
}

// settings are those of one call.
type settings struct {
	p    *Player
	line string
	set  map[string]string
}

func (s settings) has(name string) bool { _, is := s.set[name]; delete(s.set, name); return is }

func (s settings) text(name, otherwise string) string {
	if v, is := s.set[name]; is {
		delete(s.set, name)
		return v
	}
	return otherwise
}

func (s settings) number(name string, otherwise int) int {
	n, err := strconv.Atoi(s.text(name, strconv.Itoa(otherwise)))
	if err != nil {
		s.p.t.Fatalf("%q: %s is no number", s.line, name)
	}
	return n
}

func (s settings) duration(name string) time.Duration {
	d, err := time.ParseDuration(s.text(name, "0s"))
	if err != nil {
		s.p.t.Fatalf("%q: %s is no duration", s.line, name)
	}
	return d
}

// instant is the zero time when it is not set.
func (s settings) instant(name string) time.Time {
	if _, is := s.set[name]; !is {
		return time.Time{}
	}
	return s.p.start.Add(s.duration(name))
}

func (p *Player) call(line string) string {
	p.t.Helper()
	words := strings.Fields(line)
	verb, words := words[0], words[1:]
	about := ""
	if len(words) > 0 && verb != "claim" && verb != "prune" {
		about, words = words[0], words[1:]
	}
	s := settings{p: p, line: line, set: map[string]string{}}
	for _, word := range words {
		name, v, _ := strings.Cut(word, "=")
		s.set[name] = v
	}
	now := p.start.Add(s.duration("at"))
	said := p.make(verb, about, now, s)
	if len(s.set) > 0 {
		p.t.Fatalf("%q: there is no such setting as %v", line, s.set)
	}
	return said
}

func (p *Player) make(verb, about string, now time.Time, s settings) string {
	p.t.Helper()
	store := p.o.Store
	switch verb {
	case "insert":
		return p.insert(about, now, s)
	case "insert-again":
		return p.inserted(store.InsertRun(p.ctx, p.owners[about], p.inserts[about]))
	case "claim":
		return p.claim(now, s)
	case "commit":
		return p.commit(about, now, s)
	case "commit-again":
		return committedAnswer(store.Commit(p.ctx, backend.System(), p.commits[about]))
	case "mutate":
		return p.mutate(about, now, s)
	case "recover":
		return answer(store.RetryPoisonedRun(p.ctx, backend.System(), about, now), "ok")
	case "prune":
		pruned, err := store.Features().Retention.Prune(p.ctx, backend.PrunePolicy{Before: s.instant("before"), Limit: s.number("limit", 10)})
		return answer(err, fmt.Sprintf("%d runs, %d events", pruned.Runs, pruned.Events))
	case "lock":
		unlock, err := p.o.Hooks.LockRun(p.ctx, about)
		if err == nil {
			p.unlocks[about] = unlock
		}
		return answer(err, "ok")
	case "unlock":
		p.unlocks[about]()
		delete(p.unlocks, about)
		return "ok"
	case "show":
		seen, err := look(p.ctx, store, nil, whole)
		return answer(err, "\n"+strings.TrimRight(shows(seen, p.start), "\n"))
	}
	v := p.leases[about]
	if v == nil {
		p.t.Fatalf("%q: there is no such call, or no such lease", s.line)
	}
	switch l := v.lease; verb {
	case "refresh":
		return answer(store.RefreshClaim(p.ctx, l.Run, l.Token, now), "ok")
	case "release":
		return answer(store.ReleaseClaim(p.ctx, l.Run, l.Token, claim.ReleasePolicy{Now: now, After: s.duration("after"), Refund: s.has("refund")}), "ok")
	case "abandon":
		d, err := store.AbandonClaim(p.ctx, l.Run, l.Token, claim.AbandonPolicy{
			Now: now, ExpectedSeq: int64(s.number("seq", int(l.Seq))), MaxAbandons: s.number("max", 3), RetryAt: s.instant("retry-at"),
			RetryAfter: s.duration("after"), NeverPoison: s.has("never-poison"), Backoff: claim.Backoff{Base: s.duration("base"), Cap: s.duration("cap")},
		})
		return answer(err, dispositions[d])
	}
	p.t.Fatalf("%q: there is no such call", s.line)
	return ""
}

// dispositions are the answers of an abandon as words of the transcript.
var dispositions = map[claim.Disposition]string{claim.Stale: "stale", claim.Rescheduled: "rescheduled", claim.Poisoned: "poisoned"}

func (p *Player) commitID(name string) checkpoint.ID {
	p.ids++
	if name == "" {
		return checkpointID(p.ids)
	}
	return checkpoint.ID(name)
}

func (p *Player) insert(id string, now time.Time, s settings) string {
	owner := tenantless
	if tenant := s.text("owner", ""); tenant != "" {
		owner = backend.Tenant(tenant)
	}
	in := opening(id, p.refs[s.number("version", 0)], now, p.commitID(s.text("id", "")))
	in.Key, in.Window = s.text("key", ""), s.duration("window")
	if wake := s.instant("wake"); !wake.IsZero() {
		in.Schedule = checkpoint.Schedule{Kind: checkpoint.ReleaseAt, At: wake}
	}
	if s.has("claimed") {
		claimed(&in)
	}
	if _, known := p.inserts[id]; !known {
		p.inserts[id], p.owners[id] = in, owner
	}
	return p.inserted(p.o.Store.InsertRun(p.ctx, owner, in))
}

func (p *Player) inserted(inserted backend.Inserted, err error) string {
	switch {
	case err == nil && inserted.Replayed:
		return "replayed"
	case err == nil && inserted.Existing:
		return "existing " + inserted.Run
	case err == nil && inserted.Lease != nil:
		return "stored, " + p.lend(*inserted.Lease)
	}
	return answer(err, "stored")
}

// lend names a lease, whose holder believes what the store holds now.
func (p *Player) lend(l claim.Lease) string {
	p.named++
	name := fmt.Sprintf("L%d", p.named)
	d, err := p.o.Store.FetchRun(p.ctx, backend.System(), l.Run)
	if err != nil {
		p.t.Fatalf("FetchRun of %s: %v", l.Run, err)
	}
	p.leases[name] = &view{name: name, lease: l, document: d}
	return fmt.Sprintf("%s = %s, attempt %d", name, l.Run, l.Attempt)
}

func (p *Player) claim(now time.Time, s settings) string {
	policy := claim.Policy{
		Now: now, TTL: ttl, Limit: s.number("limit", 10), MaxAttempts: s.number("max", 3), OwnerCap: s.number("cap", 0),
		Prefer: map[string]claim.Class{"ready": claim.Ready, "expired": claim.Expired}[s.text("prefer", "")],
	}
	if _, is := s.set["ttl"]; is {
		policy.TTL = s.duration("ttl")
	}
	if s.has("interleave") {
		policy.Fairness = claim.Interleave
	}
	if version := s.number("only-version", -1); version >= 0 {
		policy.Filter.Graphs = []claim.GraphFilter{{ID: p.refs[version].ID, Hash: p.refs[version].Hash}}
	}
	if id := s.text("only-run", ""); id != "" {
		policy.Filter.Runs = []string{id}
	}
	batch, err := p.o.Store.ClaimDue(p.ctx, policy)
	sortBatch(&batch)
	var said []string
	for _, l := range batch.Leases {
		said = append(said, p.lend(l))
	}
	for _, o := range batch.Poisoned {
		said = append(said, "poison "+o.Run)
	}
	switch {
	case s.has("counted"):
		return answer(err, fmt.Sprintf("%d outcomes", len(said)))
	case len(said) == 0:
		said = []string{"nothing"}
	}
	return answer(err, strings.Join(said, "; "))
}

func (p *Player) commit(lease string, now time.Time, s settings) string {
	v := p.leases[lease]
	i := slices.IndexFunc(ends, func(e end) bool { return s.has(string(e)) })
	if v == nil || i < 0 {
		p.t.Fatalf("%q: a commit needs a lease and an end", s.line)
	}
	name := s.text("id", "")
	c := backend.Commit{Proposal: next(v.document, ends[i], now, s.instant("wake")), CheckpointID: p.commitID(name), Token: v.lease.Token}
	p.commits[name] = c
	said := committedAnswer(p.o.Store.Commit(p.ctx, backend.System(), c))
	if said == "ok" {
		v.believes(c.Document)
	}
	return said
}

func committedAnswer(c backend.Committed, err error) string {
	if err == nil && c.Replayed {
		return "replayed"
	}
	return answer(err, "ok")
}

func (p *Player) mutate(id string, now time.Time, s settings) string {
	kinds := []mutation{cancels, resumes, advances, parks, finishes}
	i := slices.IndexFunc(kinds, func(k mutation) bool { return s.has(string(k)) })
	if i < 0 {
		p.t.Fatalf("%q: a mutation needs a kind", s.line)
	}
	return mutationAnswer(p.o.Store.MutateRun(p.ctx, backend.System(), id, p.commitID(s.text("id", "")), func(current *run.Document) (backend.Mutation, error) {
		proposal := kinds[i].propose(now)(current)
		return backend.Mutation{Proposal: &proposal}, nil
	}))
}
