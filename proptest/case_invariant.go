package proptest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// Rules that only real concurrency can break.
var concurrencyCases = []Case{
	{
		ID: "C1.one-winner", Says: "of commits of one sequence at once, under the same claim, exactly one succeeds",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			for range 10 {
				const n = 6
				commits := make([]backend.Commit, n)
				errs := make([]error, n)
				for i := range commits {
					commits[i] = backend.Commit{Proposal: next(d, toRetain, r.at(time.Duration(i)*time.Second), r.start), CheckpointID: r.commitID(), Token: l.Token}
				}
				r.together(n, func(i int) error {
					_, errs[i] = r.store.Commit(r.ctx, backend.System(), commits[i])
					return nil
				})
				won := -1
				for i, err := range errs {
					switch {
					case err == nil && won >= 0:
						r.Fatalf("two commits succeeded at sequence %d", d.Seq+1)
					case err == nil:
						won = i
					default:
						r.refused("the loser of a race", err, checkpoint.ErrStaleFence)
					}
				}
				if won < 0 {
					r.Fatalf("no commit succeeded at sequence %d", d.Seq+1)
				}
				d = commits[won].Document
				r.document(d)
			}
		},
	},
	{
		ID: "C2.claimed-once", Says: "claimers at once never get the same run, and together get every one that is due",
		run: func(r *rig) {
			const runs, claimers = 40, 8
			for i := range runs {
				r.put(fmt.Sprintf("run-%02d", i))
			}
			var mu sync.Mutex
			got := map[string]int{}
			r.together(claimers, func(int) error {
				for idle := 0; idle < 3; {
					p := r.policy(0)
					p.Limit = 3
					batch, err := r.store.ClaimDue(r.ctx, p)
					if err != nil {
						return err
					}
					if len(batch.Leases) == 0 {
						idle++
					}
					mu.Lock()
					for _, l := range batch.Leases {
						got[l.Run]++
					}
					mu.Unlock()
				}
				return nil
			})
			for id, n := range got {
				if n != 1 {
					r.Errorf("run %s was leased %d times at once", id, n)
				}
			}
			for _, l := range r.claim(r.policy(0)).Leases {
				got[l.Run]++ // a row may have been locked at each of the others' last looks
			}
			if len(got) != runs {
				r.Errorf("%d of %d due runs were leased", len(got), runs)
			}
		},
	},
	{
		ID: "C3.counted", Says: "the checkpoint sequence counts the commits and mutations that succeeded, under concurrency too",
		run: func(r *rig) {
			d := r.put("a")
			const n = 8
			ids := make([][]checkpoint.ID, n)
			for i := range ids {
				for range 20 {
					ids[i] = append(ids[i], r.commitID())
				}
			}
			var mu sync.Mutex
			succeeded := int64(0)
			r.together(n, func(i int) error {
				for _, id := range ids[i] {
					m, err := r.store.MutateRun(r.ctx, backend.System(), "a", id, func(current *run.Document) (backend.Mutation, error) {
						if i%2 == 0 {
							return backend.Mutation{}, nil
						}
						p := next(current, toNow, r.start, r.start)
						return backend.Mutation{Proposal: &p}, nil
					})
					if err != nil {
						return err
					}
					if m.Committed {
						mu.Lock()
						succeeded++
						mu.Unlock()
					}
				}
				return nil
			})
			if seq := r.inspect("a").Document.Seq; seq != d.Seq+succeeded {
				r.Errorf("after %d successes the sequence went from %d to %d", succeeded, d.Seq, seq)
			}
		},
	},
	{
		ID: "C9.together", Says: "document and events of one transition become visible together",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			const commits = 100
			ids := make([]checkpoint.ID, commits)
			for i := range ids {
				ids[i] = r.commitID()
			}
			done := make(chan struct{})
			r.together(2, func(i int) error {
				if i == 0 {
					defer close(done)
					for _, id := range ids {
						p := next(d, toRetain, r.start, r.start)
						if _, err := r.store.Commit(r.ctx, backend.System(), backend.Commit{Proposal: p, CheckpointID: id, Token: l.Token}); err != nil {
							return err
						}
						d = p.Document
					}
					return nil
				}
				for reading := true; reading; {
					select {
					case <-done:
						reading = false
					default:
					}
					before, err := r.store.FetchRun(r.ctx, backend.System(), "a")
					if err != nil {
						return err
					}
					event, err := r.store.LatestEvent(r.ctx, backend.System(), "a")
					if err != nil {
						return err
					}
					after, err := r.store.FetchRun(r.ctx, backend.System(), "a")
					if err != nil {
						return err
					}
					if event == nil || event.Seq < before.EventSeq || event.Seq > after.EventSeq || event.Type != run.EventCheckpointCommitted {
						return fmt.Errorf("between the sequences %d and %d the latest event is %+v", before.Seq, after.Seq, event)
					}
				}
				return nil
			})
		},
	},
}

// C1 to C12, each as one history. What a clause of another group proves already is not
// repeated here.
var invariantCases = []Case{
	{
		ID: "C2.void-tokens", Says: "a token that was voided never refreshes, releases, abandons or commits again",
		run: func(r *rig) {
			r.eachVoid(func(how string, l claim.Lease, d *run.Document) {
				r.untouched("every call under a token that was "+how, func() { r.zombie(l, d) })
			})
		},
	},
	{
		ID: "C3.only-by-commits", Says: "the checkpoint sequence grows by exactly 1 with each commit and mutation, and with nothing else",
		run: func(r *rig) {
			seq := func(want int64) {
				r.Helper()
				if got := r.inspect("a").Document.Seq; got != want {
					r.Errorf("the sequence is %d; it must be %d", got, want)
				}
			}
			d := r.put("a")
			seq(1)
			l := r.take("a", 0)
			seq(1)
			r.commit(l, d, toRetain, 0)
			seq(2)
			r.ok("RefreshClaim", r.store.RefreshClaim(r.ctx, "a", l.Token, r.at(time.Second)))
			r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.at(time.Second)}))
			seq(2)
			r.abandons(r.take("a", time.Second), claim.AbandonPolicy{Now: r.at(time.Second), ExpectedSeq: 2, MaxAbandons: 1}, claim.Rescheduled)
			seq(2)
			r.mutate("a", func(current *run.Document) run.Proposal { return next(current, toWaiting, r.start, r.start) })
			seq(3)
			r.mutate("a", func(current *run.Document) run.Proposal { return resume(current, r.start) })
			seq(4)
		},
	},
	{
		ID: "C5.in-a-row", Says: "releases without refund use the attempts up; refunds and abandons hand them back, however many",
		run: func(r *rig) {
			r.put("a")
			p := r.policy(0)
			p.MaxAttempts = 2
			for i := range 20 {
				l := r.claims(p, "a").Leases[0]
				if l.Attempt != 1 {
					r.Fatalf("after %d launches that were handed back this is attempt %d", i, l.Attempt)
				}
				if i%2 == 0 {
					r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.start, Refund: true}))
				} else {
					r.abandons(l, claim.AbandonPolicy{Now: r.start, ExpectedSeq: 1, MaxAbandons: 100}, claim.Rescheduled)
				}
			}
			for range 2 {
				l := r.claims(p, "a").Leases[0]
				r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.start}))
			}
			r.claims(p, "poison:a")
		},
	},
	{
		ID: "C7.poison-stays", Says: "no call but a recovery and a mutation ends poison",
		run: func(r *rig) {
			d := r.put("a")
			p := r.policy(0)
			p.MaxAttempts, p.TTL = 1, 0
			l := r.claims(p, "a").Leases[0]
			p.Now = r.at(time.Second)
			r.claims(p, "poison:a")
			r.untouched("every other call on a poisoned run", func() {
				r.zombie(l, d)
				p.Now, p.MaxAttempts = r.at(1000*time.Hour), 100
				r.claims(p)
				_, err := r.store.MutateRun(r.ctx, backend.System(), "a", r.commitID(), func(*run.Document) (backend.Mutation, error) {
					return backend.Mutation{}, nil
				})
				r.ok("MutateRun without a proposal", err)
			})
		},
	},
	{
		ID: "C8.terminal", Says: "no call changes a finished run",
		run: func(r *rig) {
			for _, e := range terminal {
				d := r.put(string(e))
				l := r.take(string(e), 0)
				ended := r.commit(l, d, e, 0)
				r.untouched("every call on a finished run", func() {
					r.zombie(l, d)
					r.zombie(l, ended)
					p := r.policy(1000 * time.Hour)
					p.TTL = 0
					r.claims(p)
					r.refused("RetryPoisonedRun", r.store.RetryPoisonedRun(r.ctx, backend.System(), ended.ID, r.at(time.Hour)), backend.ErrInactiveRun)
					for _, to := range []end{toNow, toWaiting, toDone, toCancelled} {
						_, err := r.store.MutateRun(r.ctx, backend.System(), ended.ID, r.commitID(), func(current *run.Document) (backend.Mutation, error) {
							p := next(current, to, r.at(time.Hour), r.start)
							return backend.Mutation{Proposal: &p}, nil
						})
						r.refused("MutateRun to "+string(to), err, backend.ErrInvalidMutation)
					}
				})
			}
		},
	},
	{
		ID: "C10.scopes", Says: "no call in one scope changes a run of another, or tells that it is there",
		run: func(r *rig) {
			in := r.draft("secret-run", func(in *backend.Initialization) { in.Key = "shared-key" })
			r.insert(acme, in)
			second := r.publish(globex, r.ref.ID, 0)
			r.untouched("every call in another scope", func() {
				for _, c := range inScope(backend.Of(globex)) {
					err := c.with(r, "secret-run")
					r.refused(c.name, err, backend.ErrNotFound)
					r.silent(c.name, err)
				}
				_, err := r.store.InsertRun(r.ctx, globex, r.draft("secret-run", nil))
				r.refused("InsertRun under the taken id", err, backend.ErrConflict)
				r.silent("InsertRun under the taken id", err)
				page, err := r.store.ListRuns(r.ctx, backend.Of(globex), backend.Query{Limit: 10})
				r.ok("ListRuns", err)
				r.same("another scope's list", page, backend.Page{})
			})
			r.same("the answer under the shared key", r.insert(globex, r.draft("other", func(in *backend.Initialization) { in.Key, in.Document.Graph = "shared-key", second })), backend.Inserted{Run: "other"})
		},
	},
}

// zombie makes every call that a holder could, under a token that holds nothing, and
// requires the answer of each.
func (r *rig) zombie(l claim.Lease, d *run.Document) {
	r.Helper()
	late := r.at(100 * time.Hour)
	r.refused("RefreshClaim by a zombie", r.store.RefreshClaim(r.ctx, l.Run, l.Token, late), backend.ErrClaimLost)
	for _, refund := range []bool{false, true} {
		r.ok("ReleaseClaim by a zombie", r.store.ReleaseClaim(r.ctx, l.Run, l.Token, claim.ReleasePolicy{Now: late, Refund: refund}))
	}
	stored := r.inspect(l.Run).Document.Seq
	for _, seq := range []int64{d.Seq, stored} {
		for _, never := range []bool{false, true} {
			r.abandons(l, claim.AbandonPolicy{Now: late, ExpectedSeq: seq, MaxAbandons: 1, NeverPoison: never}, claim.Stale)
		}
	}
	for _, e := range []end{toRetain, toNow, toDone} {
		if d.Status.Terminal() {
			break
		}
		_, err := r.send(l, next(d, e, late, late))
		r.refused("Commit by a zombie", err, checkpoint.ErrStaleFence)
	}
	if b := r.store.Features().Batches; b != nil {
		for _, err := range b.RefreshClaims(r.ctx, []backend.Held{{Run: l.Run, Token: l.Token}}, late) {
			r.refused("RefreshClaims by a zombie", err, backend.ErrClaimLost)
		}
	}
}

// silent requires that an error's text tells nothing of the owner whose run it hides.
func (r *rig) silent(what string, err error) {
	r.Helper()
	if err == nil {
		return
	}
	if strings.Contains(err.Error(), "acme") {
		r.Errorf("%s answered %q, which names another owner", what, err)
	}
}
