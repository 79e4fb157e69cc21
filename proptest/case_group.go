package proptest

import (
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// What a statement for many runs does that one for a single run does not show. No member is of a
// kind that a store may have to take the whole group apart for.
var groupEffectCases = []Case{
	{
		ID: "T6.effect", Says: "a commit in a group clears the counters, and does not move claimed-at back", needs: []need{batches},
		run: func(r *rig) {
			docs := []*run.Document{r.put("a"), r.put("b")}
			for _, id := range []string{"a", "b"} {
				l := r.only(id, 0)
				r.abandons(l, claim.AbandonPolicy{Now: r.start, ExpectedSeq: 1, MaxAbandons: 5}, claim.Rescheduled)
			}
			var group []backend.Commit
			for i, e := range []end{toRetain, toNow} {
				l := r.only(docs[i].ID, time.Minute)
				group = append(group, backend.Commit{Proposal: next(docs[i], e, r.at(time.Second), r.at(time.Second)), CheckpointID: r.commitID(), Token: l.Token})
			}
			for _, got := range r.store.Features().Batches.Commits(r.ctx, backend.System(), group) {
				r.ok("a member", got.Err)
			}
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(time.Minute)})
			r.expect("b", columns{Status: run.Running, Wake: r.at(time.Second)})
		},
	},
	{
		ID: "T6.zombies", Says: "members with an old token or an old sequence change nothing, and leave no events, beside members that are committed", needs: []need{batches},
		run: func(r *rig) {
			stolen, behind, fine := r.put("stolen"), r.put("behind"), r.put("fine")
			old := r.only("stolen", 0)
			r.only("stolen", 2*ttl)
			held, ours := r.only("behind", 2*ttl), r.only("fine", 2*ttl)
			r.commit(held, behind, toRetain, 2*ttl)
			before := r.look()
			member := func(d *run.Document, l claim.Lease) backend.Commit {
				return backend.Commit{Proposal: next(d, toDone, r.at(2*ttl), r.start), CheckpointID: r.commitID(), Token: l.Token}
			}
			group := []backend.Commit{member(stolen, old), member(behind, held), member(fine, ours)}
			// Its events are none that are stored, so that nothing but the sequence refuses it.
			for i := range group[1].Events {
				group[1].Events[i].Seq += 10
			}
			group[1].Document.EventSeq += 10
			got := r.store.Features().Batches.Commits(r.ctx, backend.System(), group)
			r.fence("the member with an old token", got[0].Err, checkpoint.FenceError{Stored: 1, Presented: 1})
			r.fence("the member with an old sequence", got[1].Err, checkpoint.FenceError{Stored: 2, Presented: 1, TokenMatched: true})
			r.ok("the member under its own claim", got[2].Err)
			after := r.look()
			for _, id := range []string{"stolen", "behind"} {
				r.same("the state of "+id, after.Infos[id], before.Infos[id])
				r.same("the events of "+id, after.Events[id], before.Events[id])
			}
			r.expect("fine", columns{Status: run.Done})
		},
	},
	{
		ID: "X2.inserts-scheduled", Says: "each run of a batch is due at its own wake", needs: []need{batches},
		run: func(r *rig) {
			r.publish(tenantless, r.ref.ID, 0)
			ins := []backend.Initialization{r.draft("now", nil), r.draft("later", dueAt(r.at(time.Hour))), r.draft("past", dueAt(r.at(-time.Hour)))}
			for _, got := range r.store.Features().Batches.InsertRuns(r.ctx, tenantless, ins) {
				r.ok("a member", got.Err)
			}
			r.expect("now", columns{Status: run.Running, Wake: r.start})
			r.expect("later", columns{Status: run.Running, Wake: r.at(time.Hour)})
			r.expect("past", columns{Status: run.Running, Wake: r.at(-time.Hour)})
		},
	},
	{
		ID: "X4.expired", Says: "a filter holds for expired runs as for those that are ready", needs: []need{claimFilter},
		run: func(r *rig) {
			second := r.publish(tenantless, r.ref.ID, 1)
			r.put("first")
			r.insert(tenantless, r.draft("second", func(in *backend.Initialization) { in.Document.Graph = second }))
			r.claims(r.policy(0), "first", "second")
			p := r.policy(2 * ttl)
			p.Filter = claim.Filter{Graphs: []claim.GraphFilter{{ID: r.ref.ID, Hash: second.Hash}}}
			r.claims(p, "second")
		},
	},
}
