package proptest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// ttl is the TTL of the kit's claims, where a case does not say otherwise.
const ttl = time.Minute

// tick is the smallest step between two instants.
const tick = time.Microsecond

// tenantless and the tenants of the cases.
var (
	tenantless = backend.Tenantless()
	acme       = backend.Tenant("acme")
	globex     = backend.Tenant("globex")
)

// rig is what one case works with: an empty store, an instant to start from, and the
// shorthand that keeps a case as short as the rule it proves.
type rig struct {
	T
	ctx   context.Context
	store backend.Store
	hooks Hooks
	// start is the instant of the case; every other one is told from it.
	start time.Time
	// ref is the graph version that runs are of, where a case does not say otherwise.
	ref graph.Ref

	commits int
	saved   []savedGraph
}

// savedGraph is a graph version of an owner that the case has stored.
type savedGraph struct {
	owner backend.Owner
	ref   graph.Ref
}

func newRig(t T, ctx context.Context, o Opened) *rig {
	ref, _ := published("proof", 0)
	return &rig{
		T: t, ctx: ctx, store: o.Store, hooks: o.Hooks, ref: ref,
		start: time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC),
	}
}

// at is the instant d after the start.
func (r *rig) at(d time.Duration) time.Time { return r.start.Add(d) }

// commitID is a checkpoint id not used before in the case.
func (r *rig) commitID() checkpoint.ID {
	r.commits++
	return checkpointID(r.commits)
}

// ok ends the case unless err is nil.
func (r *rig) ok(what string, err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("%s: %v", what, err)
	}
}

// refused requires the answer want, and no other one of the contract beside it.
func (r *rig) refused(what string, err, want error) {
	r.Helper()
	if err == nil {
		r.Errorf("%s succeeded; it must answer %q", what, want)
		return
	}
	for _, sentinel := range sentinels {
		if is := errors.Is(err, sentinel); is != (sentinel == want) {
			r.Errorf("%s answered %q; it must answer %q", what, err, want)
			return
		}
	}
	if n := backend.Classify(err); n != backend.Permanent && want != backend.ErrBusy {
		r.Errorf("%s answered %q, whose nature is %v; an answer of the contract is permanent", what, err, n)
	}
}

// sentinels are the answers of the contract. Each refusal is exactly one of them.
var sentinels = []error{
	backend.ErrInvalidArgument, backend.ErrNotFound, backend.ErrConflict, backend.ErrInvalidCommit,
	backend.ErrInvalidMutation, backend.ErrEventConflict, backend.ErrClaimLost, backend.ErrInactiveRun,
	backend.ErrInvalidGraphHash, backend.ErrGraphConflict, backend.ErrCorruptGraph, backend.ErrCorrupt,
	backend.ErrBusy, backend.ErrUnsupported, backend.ErrClosed, checkpoint.ErrStaleFence,
}

// publish stores a version of a graph for an owner, once.
func (r *rig) publish(owner backend.Owner, id string, version int) graph.Ref {
	r.Helper()
	ref, raw := published(id, version)
	r.ok("SaveGraph", r.store.SaveGraph(r.ctx, owner, ref, raw))
	if g := (savedGraph{owner, ref}); !slices.Contains(r.saved, g) {
		r.saved = append(r.saved, g)
	}
	return ref
}

// draft is the first commit of a run that is due at the start. edit, when not nil, changes it.
func (r *rig) draft(id string, edit func(in *backend.Initialization)) backend.Initialization {
	in := opening(id, r.ref, r.start, r.commitID())
	if edit != nil {
		edit(&in)
	}
	return in
}

// insert stores a run of an owner and ends the case if that fails.
func (r *rig) insert(owner backend.Owner, in backend.Initialization) backend.Inserted {
	r.Helper()
	if !slices.Contains(r.saved, savedGraph{owner, r.ref}) {
		r.publish(owner, r.ref.ID, 0)
	}
	inserted, err := r.store.InsertRun(r.ctx, owner, in)
	r.ok("InsertRun of "+in.Document.ID, err)
	return inserted
}

// put stores a tenantless run that is due at the start.
func (r *rig) put(id string) *run.Document {
	r.Helper()
	return r.putFor(tenantless, id, r.start)
}

// putAt stores a tenantless run that is due at wake.
func (r *rig) putAt(id string, wake time.Time) *run.Document {
	r.Helper()
	return r.putFor(tenantless, id, wake)
}

// putFor stores a run of an owner that is due at wake.
func (r *rig) putFor(owner backend.Owner, id string, wake time.Time) *run.Document {
	r.Helper()
	in := r.draft(id, dueAt(wake))
	r.insert(owner, in)
	return in.Document
}

// dueAt makes a drafted run due at wake.
func dueAt(wake time.Time) func(*backend.Initialization) {
	return func(in *backend.Initialization) {
		in.Schedule = checkpoint.Schedule{Kind: checkpoint.ReleaseAt, At: wake}
	}
}

// policy is a claim of up to ten outcomes at d after the start.
func (r *rig) policy(d time.Duration) claim.Policy {
	return claim.Policy{Now: r.at(d), TTL: ttl, Limit: 10, MaxAttempts: 3}
}

// claim claims and ends the case if that fails. The outcomes are sorted by run, since
// their order says nothing.
func (r *rig) claim(p claim.Policy) claim.Batch {
	r.Helper()
	batch, err := r.store.ClaimDue(r.ctx, p)
	r.ok("ClaimDue", err)
	sortBatch(&batch)
	return batch
}

// take claims the one run that is due at d after the start, and requires it to be id.
func (r *rig) take(id string, d time.Duration) claim.Lease {
	r.Helper()
	batch := r.claim(r.policy(d))
	if got := outcomes(batch); len(batch.Leases) != 1 || !slices.Equal(got, []string{id}) {
		r.Fatalf("ClaimDue at start+%v gave %d leases, outcomes %v; it must lease %q alone", d, len(batch.Leases), got, id)
	}
	return batch.Leases[0]
}

// outcomes lists the runs of a batch, "poison:" before the poisoned ones, sorted.
func outcomes(b claim.Batch) []string {
	ids := []string{}
	for _, l := range b.Leases {
		ids = append(ids, l.Run)
	}
	for _, p := range b.Poisoned {
		ids = append(ids, "poison:"+p.Run)
	}
	slices.Sort(ids)
	return ids
}

// claims requires that a claim has exactly these outcomes.
func (r *rig) claims(p claim.Policy, want ...string) claim.Batch {
	r.Helper()
	batch := r.claim(p)
	slices.Sort(want)
	if got := outcomes(batch); !slices.Equal(got, want) {
		r.Errorf("ClaimDue(limit %d, prefer %v) at start+%v gave %v; it must give %v",
			p.Limit, p.Prefer, p.Now.Sub(r.start), got, want)
	}
	return batch
}

// send commits and hands back the answer.
func (r *rig) send(l claim.Lease, p run.Proposal) (backend.Committed, error) {
	return r.store.Commit(r.ctx, backend.System(), backend.Commit{Proposal: p, CheckpointID: r.commitID(), Token: l.Token})
}

// commit takes a leased run to an end, at d after the start.
func (r *rig) commit(l claim.Lease, prev *run.Document, e end, d time.Duration) *run.Document {
	r.Helper()
	p := next(prev, e, r.at(d), r.at(d))
	committed, err := r.send(l, p)
	r.ok("Commit of "+prev.ID+" to "+string(e), err)
	if committed.Replayed {
		r.Errorf("the first commit of %s under this checkpoint id answered replayed", prev.ID)
	}
	return p.Document
}

// mutate applies a mutation that proposes what propose makes of the current document.
func (r *rig) mutate(id string, propose func(current *run.Document) run.Proposal) backend.Mutated {
	r.Helper()
	m, err := r.store.MutateRun(r.ctx, backend.System(), id, r.commitID(), func(current *run.Document) (backend.Mutation, error) {
		p := propose(current)
		return backend.Mutation{Proposal: &p}, nil
	})
	r.ok("MutateRun of "+id, err)
	if !m.Committed {
		r.Errorf("MutateRun of %s did not say that it committed", id)
	}
	return m
}

// bring stores a run and takes it to an end, by a claim and a commit at the start.
func (r *rig) bring(id string, e end) *run.Document {
	r.Helper()
	d := r.put(id)
	return r.commit(r.take(id, 0), d, e, 0)
}

// poison brings a due run to be poisoned at d after the start, by one launch and a second
// need under a maximum of one.
func (r *rig) poison(id string, d time.Duration) *run.Document {
	r.Helper()
	doc := r.put(id)
	p := r.policy(d)
	p.MaxAttempts, p.TTL = 1, 0
	p.Now = r.at(d - tick)
	r.claims(p, id)
	p.Now = r.at(d)
	r.claims(p, "poison:"+id)
	return doc
}
