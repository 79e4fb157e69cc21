package proptest

import (
	"errors"
	"fmt"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// T4: refusals.
var refusalCases = []Case{
	{
		ID: "T4.stays", Says: "a refused fence stays refused, whatever happens to the run afterwards",
		run: func(r *rig) {
			d := r.put("a")
			old := r.take("a", 0)
			l := r.take("a", ttl+tick)
			refused := func(when string) {
				r.Helper()
				r.untouched("a stale commit "+when, func() {
					_, err := r.send(old, next(d, toDone, r.at(time.Hour), r.start))
					r.refused("a stale commit "+when, err, checkpoint.ErrStaleFence)
				})
			}
			refused("while another claim holds the run")
			r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.at(2 * ttl)}))
			refused("after that claim's release")
			l = r.take("a", 2*ttl)
			d2 := r.commit(l, d, toRetain, 2*ttl)
			refused("after that claim's commit")
			r.commit(l, d2, toDone, 2*ttl)
			refused("after the run's end")
		},
	},
	{
		ID: "T4.told-under-load", Says: "a fence that loses a race is told what is stored, and never that it matched",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			for round := range 20 {
				const n = 4
				commits := make([]backend.Commit, n)
				for i := range commits {
					commits[i] = backend.Commit{
						Proposal: next(d, toRetain, r.at(time.Duration(round*n+i)*time.Second), r.start), CheckpointID: r.commitID(), Token: l.Token,
					}
				}
				won := make([]bool, n)
				r.together(n, func(i int) error {
					_, err := r.store.Commit(r.ctx, backend.System(), commits[i])
					var fence *checkpoint.FenceError
					switch {
					case err == nil:
						won[i] = true
					case !errors.As(err, &fence):
						return fmt.Errorf("the loser of a race was answered %w", err)
					case fence.Stored != d.Seq+1 || fence.Presented != d.Seq || !fence.TokenMatched:
						return fmt.Errorf("the loser of a race was told %+v", *fence)
					}
					return nil
				})
				winner := -1
				for i := range won {
					if won[i] && winner >= 0 {
						r.Fatalf("two commits succeeded at sequence %d", d.Seq+1)
					}
					if won[i] {
						winner = i
					}
				}
				if winner < 0 {
					r.Fatalf("no commit succeeded at sequence %d", d.Seq+1)
				}
				d = commits[winner].Document
				r.document(d)
			}
		},
	},
}

// T5: answers that were lost.
var replayCases = []Case{
	{
		ID: "T5.commit", Says: "a commit sent again answers replayed and touches nothing, for every schedule",
		run: func(r *rig) {
			for _, e := range ends {
				id := string(e)
				d := r.put(id)
				l := r.take(id, 0)
				c := backend.Commit{Proposal: next(d, e, r.at(time.Second), r.at(time.Hour)), CheckpointID: r.commitID(), Token: l.Token}
				r.replays(c, false)
				r.untouched("a commit to "+id+" sent again", func() { r.replays(c, true) })
				if e == toRetain || e == toNow || e == toAt {
					r.mutate(id, func(d *run.Document) run.Proposal { return next(d, toCancelled, r.start, r.start) })
				}
			}
		},
	},
	{
		ID: "T5.commit-applied-late", Says: "a commit that never arrived is applied when it is sent again",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			c := backend.Commit{Proposal: next(d, toDone, r.at(time.Second), r.start), CheckpointID: r.commitID(), Token: l.Token}
			// The first sending got lost on its way: nothing happened. The second one arrives
			// long after the TTL, under a token that nobody replaced.
			r.replays(c, false)
			r.expect("a", columns{Status: run.Done})
		},
	},
	{
		ID: "T5.commit-overtaken", Says: "a commit sent again after a newer one is refused by the fence, and touches nothing",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			c := backend.Commit{Proposal: next(d, toRetain, r.at(time.Second), r.start), CheckpointID: r.commitID(), Token: l.Token}
			r.replays(c, false)
			r.commit(l, c.Document, toRetain, 2*time.Second)
			r.untouched("a commit sent again after a newer one", func() {
				_, err := r.store.Commit(r.ctx, backend.System(), c)
				r.fence("a commit sent again after a newer one", err, checkpoint.FenceError{Stored: 3, Presented: 1, TokenMatched: true})
			})
		},
	},
	{
		ID: "T5.commit-id-per-run", Says: "a checkpoint id that another run stored replays nothing here",
		run: func(r *rig) {
			a := r.put("a")
			l := r.take("a", 0)
			c := backend.Commit{Proposal: next(a, toRetain, r.start, r.start), CheckpointID: r.commitID(), Token: l.Token}
			r.replays(c, false)
			b := r.put("b")
			c.Proposal, c.Token = next(b, toRetain, r.start, r.start), r.take("b", 0).Token
			r.replays(c, false)
			if seq := r.inspect("b").Document.Seq; seq != 2 {
				r.Errorf("the sequence of b is %d", seq)
			}
		},
	},
	{
		ID: "T5.not-by-token", Says: "another checkpoint id under the same token is another commit, not a replay",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			c := backend.Commit{Proposal: next(d, toRetain, r.start, r.start), CheckpointID: r.commitID(), Token: l.Token}
			r.replays(c, false)
			c.CheckpointID = r.commitID()
			_, err := r.store.Commit(r.ctx, backend.System(), c)
			r.fence("the same proposal under another id", err, checkpoint.FenceError{Stored: 2, Presented: 1, TokenMatched: true})
		},
	},
	{
		ID: "T5.commit-in-scope", Says: "a replay in another scope is not found",
		run: func(r *rig) {
			d := r.putFor(acme, "a", r.start)
			l := r.take("a", 0)
			c := backend.Commit{Proposal: next(d, toDone, r.start, r.start), CheckpointID: r.commitID(), Token: l.Token}
			r.replays(c, false)
			_, err := r.store.Commit(r.ctx, backend.Of(globex), c)
			r.refused("a replay in another scope", err, backend.ErrNotFound)
		},
	},
	{
		ID: "T5.insert", Says: "an insert sent again answers replayed and touches nothing, also after later commits and the end",
		run: func(r *rig) {
			in := r.draft("a", nil)
			r.insert(acme, in)
			again := func(when string) {
				r.Helper()
				r.untouched("an insert sent again "+when, func() {
					got, err := r.store.InsertRun(r.ctx, acme, in)
					r.ok("an insert sent again "+when, err)
					r.same("the answer "+when, got, backend.Inserted{Run: "a", Replayed: true})
				})
			}
			again("at once")
			l := r.take("a", 0)
			again("beside a claim")
			d := r.commit(l, in.Document, toRetain, 0)
			again("after a commit")
			r.commit(l, d, toDone, 0)
			again("after the end")
		},
	},
	{
		ID: "T5.insert-by-another", Says: "the same run id and checkpoint id from another owner is a conflict, not a replay",
		run: func(r *rig) {
			in := r.draft("a", nil)
			r.insert(acme, in)
			r.publish(globex, r.ref.ID, 0)
			r.untouched("another owner's insert", func() {
				_, err := r.store.InsertRun(r.ctx, globex, in)
				r.refused("another owner's insert of the same run", err, backend.ErrConflict)
			})
		},
	},
	{
		ID: "T5.insert-other-id", Says: "the same run id under another checkpoint id is a conflict, a later commit's id included",
		run: func(r *rig) {
			in := r.draft("a", nil)
			r.insert(tenantless, in)
			l := r.take("a", 0)
			c := backend.Commit{Proposal: next(in.Document, toNow, r.start, r.start), CheckpointID: r.commitID(), Token: l.Token}
			r.replays(c, false)
			for _, id := range []checkpoint.ID{r.commitID(), c.CheckpointID} {
				again := in
				again.CheckpointID = id
				r.untouched("an insert under another checkpoint id", func() {
					_, err := r.store.InsertRun(r.ctx, tenantless, again)
					r.refused("an insert under another checkpoint id", err, backend.ErrConflict)
				})
			}
		},
	},
	{
		ID: "T5.insert-keyed", Says: "a keyed insert sent again answers replayed, not existing, while the key is held",
		run: func(r *rig) {
			in := r.draft("a", func(in *backend.Initialization) { in.Key, in.Window = "k", time.Hour })
			r.insert(tenantless, in)
			r.untouched("a keyed insert sent again", func() {
				r.same("the answer", r.insert(tenantless, in), backend.Inserted{Run: "a", Replayed: true})
			})
		},
	},
	{
		ID: "T5.insert-key-moved-on", Says: "a keyed insert sent again after its key went to another run still answers replayed",
		run: func(r *rig) {
			in := r.draft("a", func(in *backend.Initialization) { in.Key = "k" })
			r.insert(tenantless, in)
			r.commit(r.take("a", 0), in.Document, toDone, 0)
			r.startKeyed("b", "k", 0, time.Second)
			r.untouched("a keyed insert sent again", func() {
				r.same("the answer", r.insert(tenantless, in), backend.Inserted{Run: "a", Replayed: true})
			})
		},
	},
	{
		ID: "T5.mutation", Says: "a mutation sent again finds its id stored: success, nothing touched, also after later commits",
		run: func(r *rig) {
			r.put("a")
			id := r.commitID()
			propose := func(current *run.Document) (backend.Mutation, error) {
				p := next(current, toNow, r.start, r.start)
				return backend.Mutation{Proposal: &p, Value: "value"}, nil
			}
			m, err := r.store.MutateRun(r.ctx, backend.System(), "a", id, propose)
			r.ok("MutateRun", err)
			again := func(when string, want *run.Document) {
				r.Helper()
				r.untouched("a mutation sent again "+when, func() {
					got, err := r.store.MutateRun(r.ctx, backend.System(), "a", id, propose)
					r.ok("a mutation sent again "+when, err)
					r.same("the answer "+when, got, backend.Mutated{Committed: true, Replayed: true, Document: want})
				})
			}
			again("at once", m.Document)
			l := r.take("a", 0)
			d := r.commit(l, m.Document, toRetain, 0)
			again("after a commit", d)
			d = r.commit(l, d, toDone, 0)
			again("after the end", d)
		},
	},
	{
		ID: "T5.mutation-no-change", Says: "a mutation that proposed nothing stores no id, and decides anew when it is sent again",
		run: func(r *rig) {
			r.put("a")
			id := r.commitID()
			calls := 0
			for range 2 {
				m, err := r.store.MutateRun(r.ctx, backend.System(), "a", id, func(*run.Document) (backend.Mutation, error) {
					calls++
					return backend.Mutation{}, nil
				})
				r.ok("MutateRun", err)
				if m.Committed || m.Replayed {
					r.Errorf("a mutation without a proposal answered committed %v, replayed %v", m.Committed, m.Replayed)
				}
			}
			if calls < 2 {
				r.Errorf("the function was called %d times in two mutations", calls)
			}
		},
	},
	{
		ID: "T5.after-reopen", Says: "replays are told after the store was opened again", needs: []need{reopen},
		run: func(r *rig) {
			in := r.draft("a", nil)
			r.insert(tenantless, in)
			l := r.take("a", 0)
			c := backend.Commit{Proposal: next(in.Document, toNow, r.start, r.start), CheckpointID: r.commitID(), Token: l.Token}
			r.replays(c, false)
			r.store = r.hooks.Reopen(r.T)
			r.untouched("replays", func() {
				r.replays(c, true)
				r.same("the answer of the insert", r.insert(tenantless, in), backend.Inserted{Run: "a", Replayed: true})
			})
		},
	},
}

// T6: groups.
var groupCases = []Case{
	{
		ID: "T6.answers", Says: "a group answers each member as a single commit would, in the order given, and a bad member harms no other", needs: []need{batches},
		run: func(r *rig) {
			ids := []string{"fine-1", "stale", "fine-2", "misshapen", "gone", "conflict", "replayed", "done"}
			docs := map[string]*run.Document{}
			leases := map[string]claim.Lease{}
			for _, id := range ids {
				if id != "gone" {
					docs[id] = r.put(id)
					leases[id] = r.take(id, 0)
				}
			}
			docs["gone"], leases["gone"] = opening("gone", r.ref, r.start, "").Document, claim.Lease{Token: "token"}
			var group []backend.Commit
			for _, id := range ids {
				p := next(docs[id], toRetain, r.at(time.Second), r.start)
				if id == "done" {
					p = next(docs[id], toDone, r.at(time.Second), r.start)
				}
				group = append(group, backend.Commit{Proposal: p, CheckpointID: r.commitID(), Token: leases[id].Token})
			}
			group[1].Token = "stale"
			group[3].Type = "unknown"
			group[5].Events = append(group[5].Events, run.Event{Run: "conflict", Seq: 1, Type: run.EventNodeCompleted, At: r.start, Step: 1, Node: "work"})
			r.replays(group[6], false)
			before := r.look()

			got := r.store.Features().Batches.Commits(r.ctx, backend.System(), group)
			if len(got) != len(group) {
				r.Fatalf("a group of %d got %d answers", len(group), len(got))
			}
			for i, want := range []error{nil, checkpoint.ErrStaleFence, nil, backend.ErrInvalidCommit, backend.ErrNotFound, backend.ErrEventConflict, nil, nil} {
				if want != nil {
					r.refused("the member "+ids[i], got[i].Err, want)
				} else {
					r.ok("the member "+ids[i], got[i].Err)
				}
				if replayed := ids[i] == "replayed"; got[i].Replayed != replayed {
					r.Errorf("the member %s answered replayed %v", ids[i], got[i].Replayed)
				}
			}
			after := r.look()
			for i, id := range ids {
				switch id {
				case "gone":
				case "fine-1", "fine-2", "done":
					r.document(group[i].Document)
					r.same("the events of "+id, after.Events[id], append(before.Events[id], group[i].Events...))
				default:
					r.same("the state of "+id, after.Infos[id], before.Infos[id])
					r.same("the events of "+id, after.Events[id], before.Events[id])
				}
			}
			r.expect("fine-1", columns{Status: run.Running, ClaimedAt: r.at(time.Second)})
			r.expect("done", columns{Status: run.Done})
		},
	},
	{
		ID: "T6.repeated-events", Says: "repeated events of a member collapse, and conflicting ones refuse that member alone", needs: []need{batches},
		run: func(r *rig) {
			a, la := r.put("a"), r.take("a", 0)
			b, lb := r.put("b"), r.take("b", 0)
			group := []backend.Commit{
				{Proposal: next(a, toNow, r.start, r.start), CheckpointID: r.commitID(), Token: la.Token},
				{Proposal: next(b, toNow, r.start, r.start), CheckpointID: r.commitID(), Token: lb.Token},
			}
			group[0].Events = append(group[0].Events, group[0].Events...)
			other := group[1].Events[0]
			other.Node = "other"
			group[1].Events = append(group[1].Events, other)
			got := r.store.Features().Batches.Commits(r.ctx, backend.System(), group)
			if len(got) != 2 {
				r.Fatalf("a group of 2 got %d answers", len(got))
			}
			r.ok("the member with repeated events", got[0].Err)
			r.refused("the member with conflicting events", got[1].Err, backend.ErrEventConflict)
			if n := len(r.look().Events["a"]); n != 4 {
				r.Errorf("there are %d events of a; there must be 4", n)
			}
		},
	},
	{
		ID: "T6.scope", Says: "a group in a scope reaches that scope's runs only", needs: []need{batches},
		run: func(r *rig) {
			a := r.putFor(acme, "a", r.start)
			la := r.take("a", 0)
			b := r.putFor(globex, "b", r.start)
			lb := r.take("b", 0)
			got := r.store.Features().Batches.Commits(r.ctx, backend.Of(acme), []backend.Commit{
				{Proposal: next(a, toNow, r.start, r.start), CheckpointID: r.commitID(), Token: la.Token},
				{Proposal: next(b, toNow, r.start, r.start), CheckpointID: r.commitID(), Token: lb.Token},
			})
			if len(got) != 2 {
				r.Fatalf("a group of 2 got %d answers", len(got))
			}
			r.ok("the member in the scope", got[0].Err)
			r.refused("the member of another scope", got[1].Err, backend.ErrNotFound)
			r.document(b)
		},
	},
	{
		ID: "T6.empty", Says: "an empty group has no answers", needs: []need{batches},
		run: func(r *rig) {
			b := r.store.Features().Batches
			if n := len(b.Commits(r.ctx, backend.System(), nil)) + len(b.InsertRuns(r.ctx, tenantless, nil)) + len(b.RefreshClaims(r.ctx, nil, r.start)); n != 0 {
				r.Errorf("empty groups got %d answers", n)
			}
		},
	},
	{
		ID: "T6.locked", Says: "a member whose row is locked elsewhere does not hold up the others", needs: []need{batches, lockRun},
		run: func(r *rig) {
			var group []backend.Commit
			for _, id := range []string{"a", "b", "c"} {
				d := r.put(id)
				group = append(group, backend.Commit{Proposal: next(d, toNow, r.start, r.start), CheckpointID: r.commitID(), Token: r.take(id, 0).Token})
			}
			unlock := r.lock("b")
			answers := make(chan []backend.CommitResult, 1)
			go func() { answers <- r.store.Features().Batches.Commits(r.ctx, backend.System(), group) }()
			// The others are applied while the lock is held.
			r.eventually("the members that are not locked are applied", func() bool {
				return r.inspect("a").Document.Seq == 2 && r.inspect("c").Document.Seq == 2
			})
			unlock()
			got := <-answers
			r.ok("the member a", got[0].Err)
			r.ok("the member c", got[2].Err)
			if got[1].Err != nil {
				r.refused("the member that was locked", got[1].Err, backend.ErrBusy)
				r.replays(group[1], false)
			}
			r.document(group[1].Document)
		},
	},
}
