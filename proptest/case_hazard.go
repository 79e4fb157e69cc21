package proptest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// The hazards that a backend alone can answer for.
var hazardCases = []Case{
	{
		ID: "H1.stale-sweep", Says: "acting on an old note of an expired claim changes nothing, when the run has finished or is held anew",
		run: func(r *rig) {
			d := r.put("a")
			noted := r.take("a", 0)
			// Held anew.
			l := r.take("a", ttl+tick)
			r.untouched("a sweep of a run that is held anew", func() { r.zombie(noted, d) })
			// Finished.
			r.commit(l, d, toDone, ttl+tick)
			r.untouched("a sweep of a finished run", func() { r.zombie(noted, d) })
		},
	},
	{
		ID: "H2.frozen-writer", Says: "a writer that wakes after a steal and a commit changes nothing, through three generations of zombies",
		run: func(r *rig) {
			d := r.put("a")
			var leases []claim.Lease
			var docs []*run.Document
			now := time.Duration(0)
			for generation := range 4 {
				l := r.take("a", now)
				if generation%2 == 0 { // this one commits before it freezes
					d = r.commit(l, d, toRetain, now)
				}
				leases, docs = append(leases, l), append(docs, d)
				now += ttl + tick
			}
			holder := r.take("a", now)
			for i, l := range leases {
				r.untouched(fmt.Sprintf("zombie %d", i), func() { r.zombie(l, docs[i]); r.zombie(l, d) })
			}
			d = r.commit(holder, d, toRetain, now)
			for i, l := range leases {
				r.untouched(fmt.Sprintf("zombie %d after the holder's commit", i), func() { r.zombie(l, docs[i]); r.zombie(l, d) })
			}
			r.document(d)
			r.commit(holder, d, toDone, now)
		},
	},
	{
		ID: "H4.one-bad-row", Says: "a row that cannot be decoded at the head of the queue does not keep later rows from being claimed", needs: []need{writeDocument},
		run: func(r *rig) {
			r.put("bad")
			r.putAt("good-1", r.at(time.Second))
			r.putAt("good-2", r.at(2*time.Second))
			r.ok("WriteDocument", r.hooks.WriteDocument(r.ctx, "bad", []byte(`garbage`)))
			var got []string
			for range 2 {
				p := r.policy(time.Minute)
				p.Limit = 2
				got = append(got, outcomes(r.claim(p))...)
			}
			for _, id := range []string{"good-1", "good-2"} {
				if !slices.Contains(got, id) {
					r.Errorf("two polls gave %v; %s must be among them", got, id)
				}
			}
		},
	},
	{
		ID: "H6.mixed", Says: "crashes, errors and abandons mixed: attempts and abandons are counted apart and exactly",
		run: func(r *rig) {
			r.put("a")
			p := r.policy(0)
			p.MaxAttempts, p.TTL = 3, time.Second
			launch := func(d time.Duration, attempt int) claim.Lease {
				r.Helper()
				p.Now = r.at(d)
				l := r.claims(p, "a").Leases[0]
				if l.Attempt != attempt {
					r.Errorf("the launch at start+%v is attempt %d; it must be %d", d, l.Attempt, attempt)
				}
				return l
			}
			launch(0, 1)                  // a crash
			l := launch(2*time.Second, 2) // an abandon
			r.abandons(l, claim.AbandonPolicy{Now: r.at(2 * time.Second), ExpectedSeq: 1, MaxAbandons: 2}, claim.Rescheduled)
			l = launch(3*time.Second, 2) // an error before execution, not refunded
			r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.at(3 * time.Second)}))
			l = launch(4*time.Second, 3) // an orderly shutdown
			r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.at(4 * time.Second), Refund: true}))
			l = launch(5*time.Second, 3) // an abandon
			r.abandons(l, claim.AbandonPolicy{Now: r.at(5 * time.Second), ExpectedSeq: 1, MaxAbandons: 2}, claim.Rescheduled)
			launch(6*time.Second, 3) // a crash
			p.Now = r.at(8 * time.Second)
			r.claims(p, "poison:a")
			r.expect("a", columns{
				Status: run.Running, Attempts: 3, Abandons: 2,
				Poison: claim.Poison{At: r.at(8 * time.Second), Reason: claim.MaxAttemptsExceeded},
			})
		},
	},
	{
		ID: "H6.sleeps", Says: "any number of sleeps changes no budget",
		run: func(r *rig) {
			d := r.put("a")
			p := r.policy(0)
			p.MaxAttempts = 1
			for i := range 200 {
				p.Now = r.at(time.Duration(i) * time.Second)
				l := r.claims(p, "a").Leases[0]
				if l.Attempt != 1 {
					r.Fatalf("after %d sleeps the launch is attempt %d", i, l.Attempt)
				}
				if i%2 == 0 {
					d = r.commit(l, d, toNow, time.Duration(i)*time.Second)
				} else { // nothing was due: the vehicle parks without a commit
					r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: p.Now, After: time.Second, Refund: true}))
				}
			}
			r.expect("a", columns{Status: run.Running, Wake: r.at(200 * time.Second)})
		},
	},
	{
		ID: "H9.lonely-poison", Says: "when the middle one of three runs is poisoned the others finish, and recovering all three takes one call each",
		run: func(r *rig) {
			docs := map[string]*run.Document{}
			ids := []string{"a", "b", "c"}
			for i, id := range ids {
				docs[id] = r.putAt(id, r.at(time.Duration(i)*time.Second))
			}
			p := r.policy(time.Minute)
			p.MaxAttempts = 1
			leases := r.claims(p, ids...).Leases
			for _, i := range []int{0, 2} {
				docs[ids[i]] = r.commit(leases[i], docs[ids[i]], toNow, time.Minute)
			}
			p.Now = r.at(time.Hour)
			leases = r.claims(p, "a", "poison:b", "c").Leases
			for _, l := range leases {
				r.commit(l, docs[l.Run], toNow, time.Hour)
			}
			for _, id := range ids {
				r.ok("RetryPoisonedRun of "+id, r.store.RetryPoisonedRun(r.ctx, backend.System(), id, r.at(time.Hour)))
			}
			r.claims(p, ids...)
		},
	},
	{
		ID: "H10.refresh-beside-retain", Says: "a delayed refresh that arrives after a newer commit does not move claimed-at back, so nobody steals the run",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			d = r.commit(l, d, toRetain, ttl)
			r.ok("RefreshClaim", r.store.RefreshClaim(r.ctx, "a", l.Token, r.at(time.Second)))
			if b := r.store.Features().Batches; b != nil {
				for _, err := range b.RefreshClaims(r.ctx, []backend.Held{{Run: "a", Token: l.Token}}, r.at(time.Second)) {
					r.ok("RefreshClaims", err)
				}
			}
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(ttl)})
			r.claims(r.policy(2 * ttl))
			r.commit(l, d, toDone, 2*ttl)
		},
	},
	{
		ID: "H16.look-then-park", Says: "an answer that lands between a vehicle's look and its park is not lost: the park's commit is refused",
		run: func(r *rig) {
			r.bring("a", toWaiting)
			d := r.mutate("a", func(current *run.Document) run.Proposal { return resume(current, r.start) }).Document
			l := r.take("a", 0)
			parking := next(d, toWaiting, r.start, r.start) // what the vehicle saw makes it park
			answered := r.mutate("a", func(current *run.Document) run.Proposal { return next(current, toNow, r.at(time.Second), r.start) }).Document
			r.untouched("the park", func() {
				_, err := r.send(l, parking)
				r.fence("Commit of the park", err, checkpoint.FenceError{Stored: d.Seq + 1, Presented: d.Seq})
				r.ok("ReleaseClaim of the park", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.start, After: time.Hour, Refund: true}))
			})
			r.document(answered)
			r.take("a", time.Second)
		},
	},
	{
		ID: "H17.cancel-first", Says: "a completion after a cancel is refused, and the run stays cancelled",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			cancelled := r.mutate("a", func(current *run.Document) run.Proposal { return next(current, toCancelled, r.start, r.start) }).Document
			for _, e := range []end{toDone, toFailed, toAt} {
				_, err := r.send(l, next(d, e, r.start, r.at(time.Hour)))
				r.fence("Commit to "+string(e)+" after a cancel", err, checkpoint.FenceError{Stored: 2, Presented: 1})
			}
			r.document(cancelled)
		},
	},
	{
		ID: "H17.complete-first", Says: "a cancel after a completion sees the completed run, and its function decides",
		run: func(r *rig) {
			d := r.bring("a", toDone)
			r.untouched("a cancel that finds the run done", func() {
				_, err := r.store.MutateRun(r.ctx, backend.System(), "a", r.commitID(), func(current *run.Document) (backend.Mutation, error) {
					r.same("the document the function saw", current, d)
					return backend.Mutation{}, run.ErrInactiveRun
				})
				r.refused("MutateRun", err, backend.ErrInactiveRun)
			})
		},
	},
	{
		ID: "H17.at-once", Says: "cancel and completion at once: one wins, the other gets a defined answer, nothing locks up",
		run: func(r *rig) {
			for i := range 25 {
				id := fmt.Sprintf("run-%d", i)
				d := r.put(id)
				l := r.take(id, 0)
				commit := backend.Commit{Proposal: next(d, toDone, r.start, r.start), CheckpointID: r.commitID(), Token: l.Token}
				cancel := r.commitID()
				var completed, cancelled error
				r.together(2, func(i int) error {
					if i == 0 {
						_, completed = r.store.Commit(r.ctx, backend.System(), commit)
						return nil
					}
					_, cancelled = r.store.MutateRun(r.ctx, backend.System(), id, cancel, func(current *run.Document) (backend.Mutation, error) {
						if current.Status == run.Done {
							return backend.Mutation{}, run.ErrInactiveRun
						}
						p := next(current, toCancelled, r.start, r.start)
						return backend.Mutation{Proposal: &p}, nil
					})
					return nil
				})
				switch {
				case completed == nil && errors.Is(cancelled, backend.ErrInactiveRun):
					r.expect(id, columns{Status: run.Done})
				case cancelled == nil && errors.Is(completed, checkpoint.ErrStaleFence):
					r.expect(id, columns{Status: run.Cancelled})
				default:
					r.Errorf("completion answered %v and cancel answered %v; one of them must win", completed, cancelled)
				}
				if n := len(r.look().Events[id]); n != 4 {
					r.Errorf("run %s has %d events; only the winner's may be stored", id, n)
				}
			}
		},
	},
	{
		ID: "H19.nothing-after-cancel", Says: "a cancelled run has no wake, claim, timer or open interrupt, whatever it was before, also when it never started",
		run: func(r *rig) {
			r.poison("poisoned", time.Second)
			r.bring("waiting", toWaiting)
			r.put("claimed")
			r.take("claimed", 0)
			r.putAt("never-started", r.at(time.Hour))
			for _, id := range []string{"claimed", "waiting", "poisoned", "never-started"} {
				r.mutate(id, func(current *run.Document) run.Proposal { return next(current, toCancelled, r.start, r.start) })
				r.expect(id, columns{Status: run.Cancelled})
				if n := len(r.inspect(id).Document.OpenInterrupts()); n != 0 {
					r.Errorf("the cancelled run %s has %d open interrupts", id, n)
				}
			}
			p := r.policy(1000 * time.Hour)
			p.TTL = 0
			r.claims(p)
		},
	},
	{
		ID: "H22.key-after-failure", Says: "a start key whose first insert failed is free, and is never existing without a run",
		run: func(r *rig) {
			in := r.draft("a", func(in *backend.Initialization) { in.Key, in.Document.Graph.ID = "k", "absent" })
			_, err := r.store.InsertRun(r.ctx, tenantless, in)
			r.refused("InsertRun without its graph", err, backend.ErrNotFound)
			r.absent("a")
			r.same("the answer under the key", r.startKeyed("b", "k", time.Hour, 0), backend.Inserted{Run: "b"})
			r.same("the answer under the held key", r.startKeyed("c", "k", time.Hour, 0), backend.Inserted{Run: "b", Existing: true})
		},
	},
	{
		ID: "H31.fairness", Says: "with interleaving one tenant's single run is in the first two batches, behind another's backlog",
		run: func(r *rig) {
			const backlog = 300
			ins := make([]backend.Initialization, backlog)
			for i := range ins {
				ins[i] = r.draft(fmt.Sprintf("acme-%03d", i), nil)
			}
			r.publish(acme, r.ref.ID, 0)
			if b := r.store.Features().Batches; b != nil {
				for _, res := range b.InsertRuns(r.ctx, acme, ins) {
					r.ok("InsertRuns", res.Err)
				}
			} else {
				for _, in := range ins {
					r.insert(acme, in)
				}
			}
			r.putFor(globex, "globex", r.at(time.Minute))
			var got []string
			for range 2 {
				got = append(got, outcomes(r.claim(r.interleaved(time.Hour, 10)))...)
			}
			if !slices.Contains(got, "globex") {
				r.Errorf("the first two batches of 10 are acme's alone")
			}
		},
	},
	{
		ID: "H38.cancel-holds", Says: "an acknowledged cancel is not overwritten by a retry, a refresh, a release, an abandon or a claim",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			r.mutate("a", func(current *run.Document) run.Proposal { return next(current, toCancelled, r.start, r.start) })
			r.untouched("everything that was in flight", func() {
				r.zombie(l, d)
				p := r.policy(1000 * time.Hour)
				p.TTL = 0
				r.claims(p)
			})
		},
	},
}
