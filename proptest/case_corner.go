package proptest

import (
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// Rules that one condition too few breaks, where the statement beside it keeps them.
var cornerCases = []Case{
	{
		ID: "A2.queries", Says: "the instants of a cursor are cut before they are compared",
		run: func(r *rig) {
			odd := 999 * time.Nanosecond
			r.put("a")
			page, err := r.store.ListRuns(r.ctx, backend.System(), backend.Query{Limit: 1, Before: backend.Cursor{StartedAt: r.start.Add(odd), Run: "a"}})
			r.ok("ListRuns", err)
			if len(page.Runs) != 0 {
				r.Errorf("a list from a fraction of a microsecond behind a run on shows that run")
			}
			latest, err := r.store.LatestGraph(r.ctx, tenantless, r.ref.ID)
			r.ok("LatestGraph", err)
			versions, err := r.store.GraphVersions(r.ctx, tenantless, r.ref.ID, backend.GraphQuery{
				Limit: 1, Before: backend.GraphCursor{PublishedAt: latest.PublishedAt.Add(odd), Hash: latest.Ref.Hash},
			})
			r.ok("GraphVersions", err)
			if len(versions.Versions) != 0 {
				r.Errorf("a list from a fraction of a microsecond behind a version on shows that version")
			}
		},
	},
	{
		ID: "A2.window", Says: "a key's window is counted from an instant that was cut",
		run: func(r *rig) {
			in := r.draft("a", func(in *backend.Initialization) {
				in.Now, in.Key, in.Window = r.start.Add(999*time.Nanosecond), "k", time.Second
			})
			r.insert(tenantless, in)
			r.commit(r.take("a", 0), in.Document, toDone, 0)
			r.same("the answer a microsecond before the window's end", r.startKeyed("b", "k", 0, time.Second-tick), backend.Inserted{Run: "a", Existing: true})
			r.same("the answer at the window's end", r.startKeyed("b", "k", 0, time.Second), backend.Inserted{Run: "b"})
		},
	},
	{
		ID: "A2.prune", Says: "the instant of a prune is cut before it is compared", needs: []need{retention},
		run: func(r *rig) {
			r.bring("a", toDone)
			r.untouched("a prune of before a fraction of a microsecond after a run's end", func() {
				r.same("what was deleted", r.prunes(backend.PrunePolicy{Before: r.start.Add(999 * time.Nanosecond), Limit: 1}), backend.Pruned{})
			})
		},
	},
	{
		ID: "K2.poison-goes-first", Says: "a head whose attempts are used up is its class's head: younger runs that could be leased do not go before it",
		run: func(r *rig) {
			r.put("old")
			r.take("old", 0)
			r.take("old", 2*ttl)
			r.put("young")
			r.take("young", 3*ttl)
			r.putAt("ready", r.at(4*ttl))
			p := r.policy(10 * ttl)
			p.Limit, p.MaxAttempts = 2, 2
			r.claims(p, "poison:old", "ready")
		},
	},
	{
		ID: "K8.other-run", Says: "a token gives back its own run only, and no other one under that token",
		run: func(r *rig) {
			r.put("a")
			a := r.take("a", 0)
			r.put("b")
			r.take("b", 0)
			r.untouched("a release of another run", func() {
				r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "b", a.Token, claim.ReleasePolicy{Now: r.start, Refund: true}))
			})
		},
	},
	{
		ID: "K9.other-run", Says: "a token abandons its own run only, and no other one under that token",
		run: func(r *rig) {
			r.put("a")
			a := r.take("a", 0)
			r.put("b")
			r.take("b", 0)
			a.Run = "b"
			r.untouched("an abandon of another run", func() {
				r.abandons(a, claim.AbandonPolicy{Now: r.start, ExpectedSeq: 1, MaxAbandons: 3}, claim.Stale)
			})
		},
	},
	{
		ID: "T6.identity", Says: "a member of another graph version or start, and the holder of before the poison, change nothing beside members that are committed", needs: []need{batches},
		run: func(r *rig) {
			poisoned := r.put("poisoned")
			before := r.take("poisoned", 0)
			p := r.policy(2 * ttl)
			p.MaxAttempts = 1
			r.claims(p, "poison:poisoned")
			member := func(d *run.Document, l claim.Lease) backend.Commit {
				return backend.Commit{Proposal: next(d, toNow, r.at(2*ttl), r.start), CheckpointID: r.commitID(), Token: l.Token}
			}
			group := []backend.Commit{member(poisoned, before)}
			for _, id := range []string{"version", "graph", "start", "fine"} {
				d := r.put(id)
				group = append(group, member(d, r.take(id, 2*ttl)))
			}
			edit := func(i int, edit func(d *run.Document)) {
				group[i].Proposal = edited(group[i].Proposal, func(_ *run.Proposal, d *run.Document) { edit(d) })
			}
			edit(1, func(d *run.Document) { d.Graph = r.publish(tenantless, r.ref.ID, 1) })
			edit(2, func(d *run.Document) { d.Graph = r.publish(tenantless, "another", 0) })
			edit(3, func(d *run.Document) { d.StartedAt = d.StartedAt.Add(-tick) })
			was := r.look()
			got := r.store.Features().Batches.Commits(r.ctx, backend.System(), group)
			if len(got) != len(group) {
				r.Fatalf("a group of %d got %d answers", len(group), len(got))
			}
			r.fence("the holder of before the poison", got[0].Err, checkpoint.FenceError{Stored: 1, Presented: 1})
			for i, what := range []string{"another graph version", "another graph", "another start"} {
				r.refused("the member of "+what, got[i+1].Err, backend.ErrInvalidCommit)
			}
			r.ok("the member under its own claim", got[4].Err)
			is := r.look()
			for _, id := range []string{"poisoned", "version", "graph", "start"} {
				r.same("the state of "+id, is.Infos[id], was.Infos[id])
				r.same("the events of "+id, is.Events[id], was.Events[id])
			}
			r.document(group[4].Document)
		},
	},
	{
		ID: "X2.inserts-of-owner", Says: "a member of a batch wants its graph version to be its owner's", needs: []need{batches},
		run: func(r *rig) {
			r.publish(tenantless, r.ref.ID, 0)
			theirs := r.publish(acme, r.ref.ID, 1)
			ins := []backend.Initialization{r.draft("ours", nil), r.draft("theirs", func(in *backend.Initialization) { in.Document.Graph = theirs })}
			got := r.store.Features().Batches.InsertRuns(r.ctx, tenantless, ins)
			if len(got) != 2 {
				r.Fatalf("a batch of 2 got %d answers", len(got))
			}
			r.ok("the member of our graph", got[0].Err)
			r.refused("the member of another owner's graph", got[1].Err, backend.ErrNotFound)
			r.absent("theirs")
		},
	},
	{
		ID: "X4.order", Says: "under a filter, instants and order are those of any claim", needs: []need{claimFilter},
		run: func(r *rig) {
			r.narrowed(func(p *claim.Policy) { p.Filter.Graphs = []claim.GraphFilter{{ID: r.ref.ID}} })
		},
	},
	{
		ID: "X10.order", Says: "under a cap that nobody reaches, instants and order are those of any claim", needs: []need{ownerCap},
		run: func(r *rig) { r.narrowed(func(p *claim.Policy) { p.OwnerCap = 10 }) },
	},
	{
		ID: "X7.graphs-of-owners", Says: "which graph version is the newest, and which one a run is of, is told for each owner", needs: []need{retention, setClock},
		run: func(r *rig) {
			at := func(d time.Duration, owner backend.Owner, version int) graph.Ref {
				r.hooks.SetClock(r.at(d))
				return r.publish(owner, r.ref.ID, version)
			}
			at(0, tenantless, 0)
			at(0, globex, 0)
			old := at(0, acme, 0)
			at(time.Minute, acme, 1)
			r.insert(globex, r.draft("theirs", nil))
			r.hooks.SetClock(r.at(2 * time.Hour))
			r.same("what was deleted", r.prunes(backend.PrunePolicy{Before: r.at(time.Hour), Limit: 10, Graphs: true}), backend.Pruned{Graphs: 1})
			_, err := r.store.FetchGraph(r.ctx, acme, old)
			r.refused("FetchGraph of acme's older version", err, backend.ErrNotFound)
			for _, owner := range []backend.Owner{tenantless, globex} {
				_, err := r.store.FetchGraph(r.ctx, owner, old)
				r.ok("FetchGraph of the only version of "+owner.String(), err)
			}
		},
	},
}

// narrowed claims one at a time under a policy that lets every run through: at the instant itself, the
// oldest first and not the one with the least id, those that are ready and then those that expired.
func (r *rig) narrowed(edit func(p *claim.Policy)) {
	r.Helper()
	claims := func(d time.Duration, want ...string) {
		r.Helper()
		p := r.policy(d)
		p.Limit = 1
		edit(&p)
		r.claims(p, want...)
	}
	// More than a store may look at for the sake of one.
	ids := []string{"z", "f", "e", "d", "c", "b", "a"}
	for i, id := range ids {
		r.putAt(id, r.at(time.Duration(i)*time.Second))
	}
	claims(-tick)
	const last = 6 * time.Second
	for i, id := range ids {
		claims(last+time.Duration(i)*tick, id)
	}
	claims(last + ttl)
	for _, id := range ids {
		claims(last+ttl+time.Minute, id)
	}
	r.putAt("y", r.at(time.Hour))
	claims(time.Hour-tick, "a") // which have expired again, all of the same instant
	for _, id := range []string{"b", "c", "d", "e", "f", "z", "y"} {
		claims(time.Hour, id)
	}
}
