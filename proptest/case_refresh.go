package proptest

import (
	"fmt"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// K7: refresh.
var refreshCases = []Case{
	{
		ID: "K7.moves", Says: "a refresh under the current token moves claimed-at to now",
		run: func(r *rig) {
			r.put("a")
			l := r.take("a", 0)
			r.ok("RefreshClaim", r.store.RefreshClaim(r.ctx, "a", l.Token, r.at(time.Second)))
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(time.Second), Attempts: 1})
		},
	},
	{
		ID: "K7.past-ttl", Says: "passing the TTL alone does not void a token: it refreshes, and commits",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			r.ok("RefreshClaim long after the TTL", r.store.RefreshClaim(r.ctx, "a", l.Token, r.at(100*ttl)))
			r.claims(r.policy(101 * ttl))
			d = r.commit(l, d, toRetain, 300*ttl)
			r.commit(l, d, toDone, 900*ttl)
		},
	},
	{
		ID: "K7.lost", Says: "a token that was replaced, released, abandoned, revoked, poisoned or ended by a commit is lost, and refreshing it changes nothing",
		run: func(r *rig) {
			r.eachVoid(func(how string, l claim.Lease, _ *run.Document) {
				r.untouched("refreshing a claim that was "+how, func() {
					r.refused("RefreshClaim of a claim that was "+how, r.store.RefreshClaim(r.ctx, l.Run, l.Token, r.at(time.Hour)), backend.ErrClaimLost)
				})
			})
		},
	},
	{
		ID: "K7.other-run", Says: "a token holds its own run only",
		run: func(r *rig) {
			r.put("a")
			r.put("b")
			batch := r.claims(r.policy(0), "a", "b")
			r.untouched("refreshing under another run's token", func() {
				r.refused("RefreshClaim", r.store.RefreshClaim(r.ctx, "a", batch.Leases[1].Token, r.at(time.Second)), backend.ErrClaimLost)
			})
		},
	},
}

// eachVoid calls do once for every way in which a token is voided, with the lease and the
// document that its holder believes in.
func (r *rig) eachVoid(do func(how string, l claim.Lease, d *run.Document)) {
	r.Helper()
	prepare := func(id string) (claim.Lease, *run.Document) {
		d := r.put(id)
		return r.take(id, 0), d
	}
	away := func(id string) { // out of the way of the next claims
		r.mutate(id, func(current *run.Document) run.Proposal { return next(current, toCancelled, r.start, r.start) })
	}

	l, d := prepare("replaced")
	p := r.policy(ttl + tick)
	r.claims(p, "replaced")
	do("replaced", l, d)
	away("replaced")

	l, d = prepare("released")
	r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, l.Run, l.Token, claim.ReleasePolicy{Now: r.start}))
	do("released", l, d)
	away("released")

	l, d = prepare("abandoned")
	_, err := r.store.AbandonClaim(r.ctx, l.Run, l.Token, claim.AbandonPolicy{Now: r.start, ExpectedSeq: 1, MaxAbandons: 5, RetryAfter: time.Second})
	r.ok("AbandonClaim", err)
	do("abandoned", l, d)
	away("abandoned")

	l, d = prepare("revoked")
	r.mutate("revoked", func(current *run.Document) run.Proposal { return next(current, toNow, r.start, r.start) })
	do("revoked by a mutation", l, d)
	away("revoked")

	l, d = prepare("poisoned")
	p = r.policy(ttl + tick)
	p.MaxAttempts = 1
	r.claims(p, "poison:poisoned")
	do("poisoned", l, d)
	away("poisoned")

	for _, e := range []end{toNow, toAt, toWaiting, toDone} {
		id := "ended by " + string(e)
		l, d = prepare(id)
		r.commit(l, d, e, 0)
		do(id, l, d)
		if e != toDone {
			away(id)
		}
	}
}

// K8: release.
var releaseCases = []Case{
	{
		ID: "K8.due-now", Says: "a release clears the claim and makes the run due now; the attempt stays counted",
		run: func(r *rig) {
			r.put("a")
			l := r.take("a", 0)
			r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.at(time.Second)}))
			r.expect("a", columns{Status: run.Running, Wake: r.at(time.Second), Attempts: 1})
			r.claims(r.policy(time.Second - tick))
			if l := r.take("a", time.Second); l.Attempt != 2 {
				r.Errorf("the launch after a release is attempt %d", l.Attempt)
			}
		},
	},
	{
		ID: "K8.delay", Says: "a release may name a later wake",
		run: func(r *rig) {
			r.put("a")
			l := r.take("a", 0)
			r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.at(time.Second), After: time.Minute}))
			r.expect("a", columns{Status: run.Running, Wake: r.at(time.Minute + time.Second), Attempts: 1})
		},
	},
	{
		ID: "K8.refund", Says: "a release with refund hands the attempt back",
		run: func(r *rig) {
			r.put("a")
			r.take("a", 0)
			l := r.take("a", ttl+tick)
			r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.at(2 * ttl), Refund: true}))
			r.expect("a", columns{Status: run.Running, Wake: r.at(2 * ttl), Attempts: 1})
		},
	},
	{
		ID: "K8.refund-floor", Says: "a refund never takes attempts below zero, which a retaining commit has reset",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			r.commit(l, d, toRetain, time.Second)
			r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.at(time.Minute), Refund: true}))
			r.expect("a", columns{Status: run.Running, Wake: r.at(time.Minute)})
		},
	},
	{
		ID: "K8.abandons-stay", Says: "a release leaves the abandons as they were",
		run: func(r *rig) {
			r.put("a")
			l := r.take("a", 0)
			_, err := r.store.AbandonClaim(r.ctx, "a", l.Token, claim.AbandonPolicy{Now: r.start, ExpectedSeq: 1, MaxAbandons: 2})
			r.ok("AbandonClaim", err)
			l = r.take("a", time.Second)
			r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.at(time.Minute), Refund: true}))
			r.expect("a", columns{Status: run.Running, Wake: r.at(time.Minute), Abandons: 1})
		},
	},
	{
		ID: "K8.stale", Says: "a release under a void token is success and changes nothing",
		run: func(r *rig) {
			r.eachVoid(func(how string, l claim.Lease, _ *run.Document) {
				r.untouched("releasing a claim that was "+how, func() {
					for _, refund := range []bool{false, true} {
						r.ok("ReleaseClaim of a claim that was "+how,
							r.store.ReleaseClaim(r.ctx, l.Run, l.Token, claim.ReleasePolicy{Now: r.at(time.Hour), Refund: refund}))
					}
				})
			})
		},
	},
	{
		ID: "K8.twice", Says: "a second release is success and changes nothing",
		run: func(r *rig) {
			r.put("a")
			l := r.take("a", 0)
			r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.at(time.Second), Refund: true}))
			r.untouched("a second release", func() {
				r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.at(time.Minute), Refund: true}))
			})
		},
	},
}

// K9: abandon.
var abandonCases = []Case{
	{
		ID: "K9.rescheduled", Says: "an abandon clears the claim, hands the attempt back, counts the abandon and sets the wake to retry-at",
		run: func(r *rig) {
			r.put("a")
			r.take("a", 0)
			l := r.take("a", ttl+tick)
			r.abandons(l, claim.AbandonPolicy{Now: r.at(2 * ttl), ExpectedSeq: 1, MaxAbandons: 2, RetryAt: r.at(3 * ttl)}, claim.Rescheduled)
			r.expect("a", columns{Status: run.Running, Wake: r.at(3 * ttl), Attempts: 1, Abandons: 1})
		},
	},
	{
		ID: "K9.retry-after", Says: "without a retry-at the wake is now plus retry-after",
		run: func(r *rig) {
			r.put("a")
			r.abandons(r.take("a", 0), claim.AbandonPolicy{Now: r.at(time.Second), ExpectedSeq: 1, MaxAbandons: 9, RetryAfter: time.Minute}, claim.Rescheduled)
			r.expect("a", columns{Status: run.Running, Wake: r.at(time.Minute + time.Second), Abandons: 1})
			r.abandons(r.take("a", 2*time.Minute), claim.AbandonPolicy{Now: r.at(3 * time.Minute), ExpectedSeq: 1, MaxAbandons: 9}, claim.Rescheduled)
			r.expect("a", columns{Status: run.Running, Wake: r.at(3 * time.Minute), Abandons: 2})
		},
	},
	{
		ID: "K9.max-abandons", Says: "a maximum of N is N reschedules; the next abandon poisons at now, the count unchanged",
		run: func(r *rig) {
			for n := 1; n <= 3; n++ {
				id := fmt.Sprintf("max-%d", n)
				r.put(id)
				d := time.Duration(0)
				for i := 1; i <= n; i++ {
					d += time.Second
					r.abandons(r.take(id, d), claim.AbandonPolicy{Now: r.at(d), ExpectedSeq: 1, MaxAbandons: n}, claim.Rescheduled)
					r.expect(id, columns{Status: run.Running, Wake: r.at(d), Abandons: i})
				}
				d += time.Second
				r.abandons(r.take(id, d), claim.AbandonPolicy{Now: r.at(d), ExpectedSeq: 1, MaxAbandons: n, RetryAt: r.at(time.Hour)}, claim.Poisoned)
				r.expect(id, columns{
					Status: run.Running, Abandons: n,
					Poison: claim.Poison{At: r.at(d), Reason: claim.MaxAbandonsExceeded},
				})
			}
		},
	},
	{
		ID: "K9.poison-refunds", Says: "the abandon that poisons hands its attempt back as well",
		run: func(r *rig) {
			r.put("a")
			r.take("a", 0)
			r.abandons(r.take("a", ttl+tick), claim.AbandonPolicy{Now: r.at(2 * ttl), ExpectedSeq: 1, MaxAbandons: 1}, claim.Rescheduled)
			r.abandons(r.take("a", 3*ttl), claim.AbandonPolicy{Now: r.at(3 * ttl), ExpectedSeq: 1, MaxAbandons: 1}, claim.Poisoned)
			r.expect("a", columns{
				Status: run.Running, Attempts: 1, Abandons: 1,
				Poison: claim.Poison{At: r.at(3 * ttl), Reason: claim.MaxAbandonsExceeded},
			})
		},
	},
	{
		ID: "K9.stale-token", Says: "under a void token an abandon is stale and changes nothing",
		run: func(r *rig) {
			r.eachVoid(func(how string, l claim.Lease, _ *run.Document) {
				r.untouched("abandoning a claim that was "+how, func() {
					for seq := int64(1); seq <= 2; seq++ {
						r.abandons(l, claim.AbandonPolicy{Now: r.at(time.Hour), ExpectedSeq: seq, MaxAbandons: 1}, claim.Stale)
					}
				})
			})
		},
	},
	{
		ID: "K9.stale-seq", Says: "after the holder's own commit an abandon is stale, though the token still holds the run",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			r.commit(l, d, toRetain, 0)
			r.untouched("an abandon after a commit", func() {
				for _, seq := range []int64{1, 3, 0} {
					r.abandons(l, claim.AbandonPolicy{Now: r.start, ExpectedSeq: seq, MaxAbandons: 1}, claim.Stale)
				}
			})
			r.commit(l, r.inspect("a").Document, toDone, time.Second)
		},
	},
	{
		ID: "K9.attempts-floor", Says: "handing the attempt back never takes attempts below zero",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			r.commit(l, d, toRetain, 0)
			r.abandons(l, claim.AbandonPolicy{Now: r.start, ExpectedSeq: 2, MaxAbandons: 1}, claim.Rescheduled)
			r.expect("a", columns{Status: run.Running, Wake: r.start, Abandons: 1})
		},
	},
	{
		ID: "K9.never-poison", Says: "an abandon that never poisons counts and reschedules beyond every maximum, and an ordinary one may then poison at once",
		run: func(r *rig) {
			r.put("a")
			for i := range 5 {
				d := time.Duration(i) * time.Second
				r.abandons(r.take("a", d), claim.AbandonPolicy{Now: r.at(d), ExpectedSeq: 1, MaxAbandons: 1, NeverPoison: true, RetryAt: r.at(d + time.Second)}, claim.Rescheduled)
				r.expect("a", columns{Status: run.Running, Wake: r.at(d + time.Second), Abandons: i + 1})
			}
			r.abandons(r.take("a", time.Minute), claim.AbandonPolicy{Now: r.at(time.Minute), ExpectedSeq: 1, MaxAbandons: 5}, claim.Poisoned)
			r.expect("a", columns{
				Status: run.Running, Abandons: 5,
				Poison: claim.Poison{At: r.at(time.Minute), Reason: claim.MaxAbandonsExceeded},
			})
		},
	},
	{
		ID: "K9.backoff", Says: "a backoff doubles from base with each earlier abandon up to cap, and retry-at is ignored",
		run: func(r *rig) {
			r.put("a")
			now := time.Duration(0)
			for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
				r.abandons(r.take("a", now), claim.AbandonPolicy{
					Now: r.at(now), ExpectedSeq: 1, MaxAbandons: 1, NeverPoison: true,
					Backoff: claim.Backoff{Base: time.Second, Cap: 5 * time.Second}, RetryAt: r.at(now + time.Hour),
				}, claim.Rescheduled)
				now += want
				r.expect("a", columns{Status: run.Running, Wake: r.at(now), Abandons: i + 1})
			}
		},
	},
	{
		ID: "K9.backoff-saturates", Says: "a backoff doubles thirty times at most, and never overflows",
		run: func(r *rig) {
			r.put("a")
			abandon := func(now time.Duration, b claim.Backoff, want time.Duration) time.Duration {
				r.Helper()
				r.abandons(r.take("a", now), claim.AbandonPolicy{Now: r.at(now), ExpectedSeq: 1, MaxAbandons: 1, NeverPoison: true, Backoff: b}, claim.Rescheduled)
				r.same("the wake", r.inspect("a").Wake, r.at(now+want))
				return now + want
			}
			now := time.Duration(0)
			for i := range 33 {
				now = abandon(now, claim.Backoff{Base: tick, Cap: 24 * time.Hour}, tick<<min(i, 30))
			}
			abandon(now, claim.Backoff{Base: 200 * 24 * time.Hour, Cap: 50 * 365 * 24 * time.Hour}, 50*365*24*time.Hour)
		},
	},
	{
		ID: "K9.backoff-without-never-poison", Says: "an ordinary abandon takes its wake from retry-at, whatever its backoff says",
		run: func(r *rig) {
			r.put("a")
			r.abandons(r.take("a", 0), claim.AbandonPolicy{
				Now: r.start, ExpectedSeq: 1, MaxAbandons: 1, RetryAt: r.at(time.Hour), Backoff: claim.Backoff{Base: time.Second, Cap: time.Second},
			}, claim.Rescheduled)
			r.expect("a", columns{Status: run.Running, Wake: r.at(time.Hour), Abandons: 1})
		},
	},
	{
		ID: "K9.reset", Says: "a commit starts the count of abandons anew",
		run: func(r *rig) {
			d := r.put("a")
			for i := range 3 {
				now := time.Duration(i) * time.Minute
				r.abandons(r.take("a", now), claim.AbandonPolicy{Now: r.at(now), ExpectedSeq: d.Seq, MaxAbandons: 1}, claim.Rescheduled)
				d = r.commit(r.take("a", now), d, toNow, now+time.Second)
				r.expect("a", columns{Status: run.Running, Wake: r.at(now + time.Second)})
			}
		},
	},
}

// abandons abandons a claim and requires the disposition.
func (r *rig) abandons(l claim.Lease, p claim.AbandonPolicy, want claim.Disposition) {
	r.Helper()
	got, err := r.store.AbandonClaim(r.ctx, l.Run, l.Token, p)
	r.ok("AbandonClaim of "+l.Run, err)
	if got != want {
		r.Errorf("AbandonClaim of %s answered %v; it must answer %v", l.Run, got, want)
	}
}

// K10: recover.
var recoverCases = []Case{
	{
		ID: "K10.recovers", Says: "recovery clears poison, sets both counters to zero and makes the run due now",
		run: func(r *rig) {
			r.putFor(acme, "a", r.start)
			r.abandons(r.take("a", 0), claim.AbandonPolicy{Now: r.start, ExpectedSeq: 1, MaxAbandons: 3}, claim.Rescheduled)
			p := r.policy(0)
			p.MaxAttempts, p.TTL = 1, 0
			r.claims(p, "a")
			p.Now = r.at(time.Second)
			r.claims(p, "poison:a")
			r.ok("RetryPoisonedRun", r.store.RetryPoisonedRun(r.ctx, backend.Of(acme), "a", r.at(time.Hour)))
			r.expect("a", columns{Status: run.Running, Wake: r.at(time.Hour)})
			if l := r.take("a", time.Hour); l.Attempt != 1 || l.Seq != 1 {
				r.Errorf("the launch after recovery is attempt %d at sequence %d", l.Attempt, l.Seq)
			}
		},
	},
	{
		ID: "K10.sequences", Says: "recovery advances neither the checkpoint sequence nor the events",
		run: func(r *rig) {
			d := r.poison("a", time.Second)
			before := r.look()
			r.ok("RetryPoisonedRun", r.store.RetryPoisonedRun(r.ctx, backend.System(), "a", r.at(time.Hour)))
			after := r.look()
			r.same("the document", after.Infos["a"].Document, d)
			r.same("the events", after.Events["a"], before.Events["a"])
			r.same("the checkpoint", after.Infos["a"].CheckpointID, before.Infos["a"].CheckpointID)
		},
	},
	{
		ID: "K10.healthy", Says: "recovering a run that is not poisoned is success and touches nothing, not even a claim",
		run: func(r *rig) {
			d := r.put("claimed")
			l := r.take("claimed", 0)
			r.putAt("scheduled", r.at(time.Hour))
			r.bring("waiting", toWaiting)
			r.untouched("recovering healthy runs", func() {
				for _, id := range []string{"claimed", "scheduled", "waiting"} {
					r.ok("RetryPoisonedRun of "+id, r.store.RetryPoisonedRun(r.ctx, backend.System(), id, r.at(time.Minute)))
				}
			})
			r.commit(l, d, toDone, time.Minute)
		},
	},
	{
		ID: "K10.terminal", Says: "recovering a finished run is an inactive run",
		run: func(r *rig) {
			for _, e := range terminal {
				r.bring(string(e), e)
				r.untouched("recovering a finished run", func() {
					r.refused("RetryPoisonedRun", r.store.RetryPoisonedRun(r.ctx, backend.System(), string(e), r.at(time.Minute)), backend.ErrInactiveRun)
				})
			}
			r.refused("RetryPoisonedRun in another scope", r.store.RetryPoisonedRun(r.ctx, backend.Of(acme), "done", r.start), backend.ErrNotFound)
		},
	},
	{
		ID: "K10.again", Says: "recovering twice is success, and the second time touches nothing",
		run: func(r *rig) {
			r.poison("a", time.Second)
			r.ok("RetryPoisonedRun", r.store.RetryPoisonedRun(r.ctx, backend.System(), "a", r.at(time.Minute)))
			r.untouched("a second recovery", func() {
				r.ok("RetryPoisonedRun", r.store.RetryPoisonedRun(r.ctx, backend.System(), "a", r.at(time.Hour)))
			})
		},
	},
	{
		ID: "K10.zombie", Says: "the token of before the poison stays void after recovery",
		run: func(r *rig) {
			d := r.put("a")
			p := r.policy(0)
			p.MaxAttempts, p.TTL = 1, 0
			l := r.claims(p, "a").Leases[0]
			p.Now = r.at(time.Second)
			r.claims(p, "poison:a")
			r.ok("RetryPoisonedRun", r.store.RetryPoisonedRun(r.ctx, backend.System(), "a", r.at(time.Minute)))
			r.untouched("a zombie's calls", func() {
				r.refused("RefreshClaim", r.store.RefreshClaim(r.ctx, "a", l.Token, r.at(time.Hour)), backend.ErrClaimLost)
				_, err := r.send(l, next(d, toDone, r.start, r.start))
				r.fence("Commit", err, checkpoint.FenceError{Stored: 1, Presented: 1})
			})
		},
	},
}
