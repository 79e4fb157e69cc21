package proptest

import (
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// A2 to A5: instants, now, and what claims leave alone.
var instantCases = []Case{
	{
		ID: "A2.microseconds", Says: "every stored instant is in UTC and cut, not rounded, to microseconds",
		run: func(r *rig) {
			zone := time.FixedZone("east", 5*3600)
			odd := func(d time.Duration) time.Time { return r.at(d).Add(999 * time.Nanosecond).In(zone) }
			r.putAt("a", odd(0))
			r.expect("a", columns{Status: run.Running, Wake: r.start})

			p := r.policy(0)
			p.Now = odd(time.Second)
			batch := r.claims(p, "a")
			r.same("the batch's now", batch.Now, r.at(time.Second))
			r.same("the lease's claimed-at", batch.Leases[0].ClaimedAt, r.at(time.Second))
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(time.Second), Attempts: 1})

			token := batch.Leases[0].Token
			r.ok("RefreshClaim", r.store.RefreshClaim(r.ctx, "a", token, odd(2*time.Second)))
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(2 * time.Second), Attempts: 1})

			_, err := r.store.AbandonClaim(r.ctx, "a", token, claim.AbandonPolicy{
				Now: odd(3 * time.Second), ExpectedSeq: 1, MaxAbandons: 1, RetryAt: odd(4 * time.Second),
			})
			r.ok("AbandonClaim", err)
			r.expect("a", columns{Status: run.Running, Wake: r.at(4 * time.Second), Abandons: 1})

			p.Now = odd(5 * time.Second)
			token = r.claims(p, "a").Leases[0].Token
			r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", token, claim.ReleasePolicy{Now: odd(6 * time.Second)}))
			r.expect("a", columns{Status: run.Running, Wake: r.at(6 * time.Second), Attempts: 1, Abandons: 1})

			p.Now, p.MaxAttempts = odd(7*time.Second), 1
			r.same("the poison", r.claims(p, "poison:a").Poisoned[0].Poison,
				claim.Poison{At: r.at(7 * time.Second), Reason: claim.MaxAttemptsExceeded})
			r.ok("RetryPoisonedRun", r.store.RetryPoisonedRun(r.ctx, backend.System(), "a", odd(8*time.Second)))
			r.expect("a", columns{Status: run.Running, Wake: r.at(8 * time.Second)})
		},
	},
	{
		ID: "A2.schedules", Says: "the instants of a schedule and of a commit's now are cut to microseconds",
		run: func(r *rig) {
			d := r.put("a")
			odd := func(d time.Duration) time.Time { return r.at(d).Add(999 * time.Nanosecond) }
			send := func(d *run.Document, e end, now, at time.Time, l claim.Lease) *run.Document {
				p := next(d, e, r.start, r.start)
				p.Now = now
				if e == toAt {
					p.Schedule.At = at
				}
				_, err := r.send(l, p)
				r.ok("Commit", err)
				return p.Document
			}
			l := r.take("a", 0)
			d = send(d, toRetain, odd(time.Second), time.Time{}, l)
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(time.Second)})
			d = send(d, toNow, odd(2*time.Second), time.Time{}, l)
			r.expect("a", columns{Status: run.Running, Wake: r.at(2 * time.Second)})
			send(d, toAt, odd(3*time.Second), odd(4*time.Second), r.take("a", 2*time.Second))
			r.expect("a", columns{Status: run.Running, Wake: r.at(4 * time.Second)})
			r.mutate("a", func(current *run.Document) run.Proposal {
				p := next(current, toAt, r.start, odd(5*time.Second))
				p.Now = odd(5 * time.Second)
				return p
			})
			r.expect("a", columns{Status: run.Running, Wake: r.at(5 * time.Second)})
			r.mutate("a", func(current *run.Document) run.Proposal {
				p := next(current, toNow, r.start, r.start)
				p.Now = odd(6 * time.Second)
				return p
			})
			r.expect("a", columns{Status: run.Running, Wake: r.at(6 * time.Second)})
		},
	},
	{
		ID: "A2.compared-after-cutting", Says: "instants are cut before they are compared, so that a fraction of a microsecond decides nothing",
		run: func(r *rig) {
			r.putAt("a", r.start.Add(999*time.Nanosecond))
			p := r.policy(0)
			p.Now = r.start.Add(time.Nanosecond)
			l := r.claims(p, "a").Leases[0]
			p.Now = r.at(ttl).Add(999 * time.Nanosecond)
			r.claims(p)
			r.expect("a", columns{Status: run.Running, ClaimedAt: l.ClaimedAt, Attempts: 1})
		},
	},
	{
		ID: "A3.own-clock", Says: "a zero now means the backend's own clock, in every operation", needs: []need{setClock},
		run: func(r *rig) {
			d := r.put("a")
			clock := func(d time.Duration) { r.hooks.SetClock(r.at(d)) }
			claimNow := func(want ...string) claim.Batch {
				p := r.policy(0)
				p.Now = time.Time{}
				return r.claims(p, want...)
			}
			clock(0)
			r.same("the batch's now", claimNow("a").Now, r.start)
			clock(ttl)
			claimNow()
			clock(ttl + tick)
			batch := claimNow("a")
			r.same("the batch's now", batch.Now, r.at(ttl+tick))
			l := batch.Leases[0]
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(ttl + tick), Attempts: 2})

			clock(2 * ttl)
			r.ok("RefreshClaim", r.store.RefreshClaim(r.ctx, "a", l.Token, time.Time{}))
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(2 * ttl), Attempts: 2})

			clock(3 * ttl)
			p := next(d, toRetain, r.start, r.start)
			p.Now = time.Time{}
			_, err := r.send(l, p)
			r.ok("Commit", err)
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(3 * ttl)})

			clock(4 * ttl)
			r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{After: time.Second}))
			r.expect("a", columns{Status: run.Running, Wake: r.at(4*ttl + time.Second)})

			clock(5 * ttl)
			l = claimNow("a").Leases[0]
			clock(6 * ttl)
			_, err = r.store.AbandonClaim(r.ctx, "a", l.Token, claim.AbandonPolicy{ExpectedSeq: 2, MaxAbandons: 1, RetryAfter: time.Second})
			r.ok("AbandonClaim", err)
			r.expect("a", columns{Status: run.Running, Wake: r.at(6*ttl + time.Second), Abandons: 1})

			clock(7 * ttl)
			l = claimNow("a").Leases[0]
			_, err = r.store.AbandonClaim(r.ctx, "a", l.Token, claim.AbandonPolicy{ExpectedSeq: 2, MaxAbandons: 1})
			r.ok("AbandonClaim", err)
			r.expect("a", columns{
				Status: run.Running, Abandons: 1,
				Poison: claim.Poison{At: r.at(7 * ttl), Reason: claim.MaxAbandonsExceeded},
			})
			clock(8 * ttl)
			r.ok("RetryPoisonedRun", r.store.RetryPoisonedRun(r.ctx, backend.System(), "a", time.Time{}))
			r.expect("a", columns{Status: run.Running, Wake: r.at(8 * ttl)})

			clock(9 * ttl)
			r.mutate("a", func(current *run.Document) run.Proposal {
				p := next(current, toNow, r.start, r.start)
				p.Now = time.Time{}
				return p
			})
			r.expect("a", columns{Status: run.Running, Wake: r.at(9 * ttl)})
		},
	},
	{
		ID: "A3.told", Says: "ClaimDue tells the instant it used, and its leases carry it",
		run: func(r *rig) {
			r.putAt("a", time.Unix(0, 0))
			p := r.policy(0)
			p.Now = time.Time{}
			batch := r.claims(p, "a")
			if batch.Now.IsZero() || batch.Now.Location() != time.UTC || !batch.Now.Equal(batch.Now.Truncate(time.Microsecond)) {
				r.Errorf("the batch's now is %v; it must be an instant in UTC and whole microseconds", batch.Now)
			}
			r.same("the lease's claimed-at", batch.Leases[0].ClaimedAt, batch.Now)
			r.expect("a", columns{Status: run.Running, ClaimedAt: batch.Now, Attempts: 1})
		},
	},
	{
		ID: "A4.refresh", Says: "a refresh that is older than the stored claimed-at succeeds and moves nothing back",
		run: func(r *rig) {
			r.put("a")
			l := r.take("a", time.Minute)
			for _, d := range []time.Duration{time.Minute, time.Minute - tick, 0, time.Minute + tick, time.Minute} {
				r.ok("RefreshClaim", r.store.RefreshClaim(r.ctx, "a", l.Token, r.at(d)))
			}
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(time.Minute + tick), Attempts: 1})
		},
	},
	{
		ID: "A4.retain", Says: "a retaining commit that is older than the stored claimed-at moves nothing back",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", time.Minute)
			d = r.commit(l, d, toRetain, 0)
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(time.Minute)})
			r.commit(l, d, toRetain, time.Hour)
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(time.Hour)})
		},
	},
	{
		ID: "A5.documents", Says: "no claim operation touches the document, the checkpoint sequence, the last update or the events",
		run: func(r *rig) {
			d := r.put("a")
			before := r.look()
			unchanged := func(what string) {
				r.Helper()
				now := r.look()
				r.same("the document after "+what, now.Infos["a"].Document, d)
				r.same("the events after "+what, now.Events["a"], before.Events["a"])
				r.same("the last update after "+what, now.Runs[0].UpdatedAt, before.Runs[0].UpdatedAt)
				r.same("the checkpoint after "+what, now.Infos["a"].CheckpointID, before.Infos["a"].CheckpointID)
				r.same("the type after "+what, now.Infos["a"].Type, checkpoint.RunInitialized)
				r.same("the sequence after "+what, now.Runs[0].Seq, int64(1))
			}
			l := r.take("a", time.Second)
			unchanged("a claim")
			r.ok("RefreshClaim", r.store.RefreshClaim(r.ctx, "a", l.Token, r.at(2*time.Second)))
			unchanged("a refresh")
			r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.at(3 * time.Second)}))
			unchanged("a release")
			r.take("a", 4*time.Second)
			l = r.take("a", 5*time.Second+ttl)
			unchanged("a steal")
			_, err := r.store.AbandonClaim(r.ctx, "a", l.Token, claim.AbandonPolicy{
				Now: r.at(6*time.Second + ttl), ExpectedSeq: 1, MaxAbandons: 1, RetryAt: r.at(7*time.Second + ttl),
			})
			r.ok("AbandonClaim", err)
			unchanged("an abandon")
			l = r.take("a", 8*time.Second+ttl)
			_, err = r.store.AbandonClaim(r.ctx, "a", l.Token, claim.AbandonPolicy{Now: r.at(9*time.Second + ttl), ExpectedSeq: 1, MaxAbandons: 1})
			r.ok("AbandonClaim", err)
			unchanged("a poison")
			r.ok("RetryPoisonedRun", r.store.RetryPoisonedRun(r.ctx, backend.System(), "a", r.at(time.Hour)))
			unchanged("a recovery")
		},
	},
}
