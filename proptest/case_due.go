package proptest

import (
	"fmt"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// K1: who is due.
var dueCases = []Case{
	{
		ID: "K1.ready", Says: "a run is ready from its wake on, the instant itself included",
		run: func(r *rig) {
			r.putAt("a", r.at(time.Second))
			r.claims(r.policy(0))
			r.claims(r.policy(time.Second - tick))
			batch := r.claims(r.policy(time.Second), "a")
			if c := batch.Leases[0].Class; c != claim.Ready {
				r.Errorf("the lease's class is %v; it must be ready", c)
			}
		},
	},
	{
		ID: "K1.expired", Says: "a claim is expired when it is strictly older than the TTL: not at the TTL, but a microsecond later",
		run: func(r *rig) {
			r.put("a")
			r.take("a", 0)
			r.claims(r.policy(ttl - tick))
			r.claims(r.policy(ttl))
			batch := r.claims(r.policy(ttl+tick), "a")
			if l := batch.Leases[0]; l.Class != claim.Expired || l.Attempt != 2 {
				r.Errorf("the lease is attempt %d, class %v; it must be attempt 2, expired", l.Attempt, l.Class)
			}
		},
	},
	{
		ID: "K1.ttl-zero", Says: "a TTL of zero expires every claim that is older than now",
		run: func(r *rig) {
			r.put("a")
			r.take("a", 0)
			p := r.policy(0)
			p.TTL = 0
			r.claims(p)
			p.Now = r.at(tick)
			r.claims(p, "a")
		},
	},
	{
		ID: "K1.ttl-of-the-claimer", Says: "the TTL that counts is the claimer's of now, not the one of the lease",
		run: func(r *rig) {
			r.put("a")
			p := r.policy(0)
			p.TTL = time.Hour
			r.claims(p, "a")
			r.take("a", ttl+tick)
		},
	},
	{
		ID: "K1.refreshed", Says: "a refresh and a retaining commit put off the expiry",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			r.ok("RefreshClaim", r.store.RefreshClaim(r.ctx, "a", l.Token, r.at(ttl)))
			r.claims(r.policy(2 * ttl))
			r.commit(l, d, toRetain, 2*ttl)
			r.claims(r.policy(3 * ttl))
			r.claims(r.policy(3*ttl+tick), "a")
		},
	},
	{
		ID: "K1.eligible-since-claimed-at", Says: "an expired run is eligible since its claimed-at, not since its claim ran out",
		run: func(r *rig) {
			r.put("expired")
			r.take("expired", 0)
			r.putAt("ready-1", r.at(time.Second))
			r.putAt("ready-2", r.at(2*time.Second))
			p := r.policy(ttl + time.Second)
			p.Limit = 1
			r.claims(p, "expired")
			p.Limit, p.Prefer = 1, claim.NoClass
			r.claims(p, "ready-1")
		},
	},
	{
		ID: "K1.never", Says: "waiting, finished and poisoned runs are never claimed, however late",
		run: func(r *rig) {
			r.bring("waiting", toWaiting)
			for _, e := range terminal {
				r.bring(string(e), e)
			}
			r.poison("poisoned", time.Second)
			p := r.policy(1000 * time.Hour)
			p.TTL, p.MaxAttempts = 0, 100
			r.untouched("a claim when nothing is due", func() { r.claims(p) })
		},
	},
	{
		ID: "K1.nothing", Says: "a claim when nothing is due is an empty batch that tells its now and touches nothing",
		run: func(r *rig) {
			r.putAt("later", r.at(time.Hour))
			r.put("held")
			r.take("held", 0)
			r.untouched("a claim when nothing is due", func() {
				batch := r.claims(r.policy(time.Second))
				r.same("the batch's now", batch.Now, r.at(time.Second))
			})
		},
	},
}

// K2: how many, and in which order.
var reservationCases = []Case{
	{
		ID: "K2.limit", Says: "a batch has as many outcomes as the limit allows and as are due",
		run: func(r *rig) {
			for i := range 5 {
				r.putAt(fmt.Sprintf("run-%d", i), r.at(time.Duration(i)*time.Second))
			}
			p := r.policy(time.Minute)
			p.Limit = 1
			r.claims(p, "run-0")
			p.Limit = 3
			r.claims(p, "run-1", "run-2", "run-3")
			r.claims(p, "run-4")
			r.claims(p)
		},
	},
	{
		ID: "K2.order", Says: "candidates go by eligible instant and then by id, bytewise, the two classes mixed",
		run: func(r *rig) {
			// Claimed at 1 s, 3 s and 5 s, ready since 2 s, 4 s and 4 s.
			for i, id := range []string{"e1", "e3", "e5"} {
				r.put(id)
				r.take(id, time.Duration(2*i+1)*time.Second)
			}
			r.putAt("r2", r.at(2*time.Second))
			r.putAt("b4", r.at(4*time.Second))
			r.putAt("B4", r.at(4*time.Second))
			p := r.policy(time.Hour)
			p.Limit, p.MaxAttempts = 3, 10
			r.claims(p, "e1", "r2", "e3")
			p.TTL = time.Hour - 6*time.Second // what was just claimed is young
			p.Limit = 2
			r.claims(p, "B4", "e5")
			r.claims(p, "b4")
		},
	},
	{
		ID: "K2.order-of-ids", Says: "among runs eligible at the same instant the smaller id goes first, bytewise",
		run: func(r *rig) {
			ids := []string{"B", "a", "aa", "b", "z", "\u00e9"}
			for i := len(ids) - 1; i >= 0; i-- {
				r.put(ids[i])
			}
			p := r.policy(time.Second)
			p.Limit = 1
			for _, id := range ids {
				r.claims(p, id)
			}
		},
	},
	{
		ID: "K2.reservation", Says: "from a limit of 2 on each class that has a candidate gets an outcome, its head",
		run: func(r *rig) {
			r.twoClasses()
			p := r.policy(time.Hour)
			p.Limit = 2
			r.claims(p, "expired-1", "ready-1")
		},
	},
	{
		ID: "K2.reservation-for-expired", Says: "older ready runs never crowd out the expired one",
		run: func(r *rig) {
			r.put("expired")
			r.take("expired", time.Second)
			for i := range 5 {
				r.putAt(fmt.Sprintf("ready-%d", i), r.at(time.Duration(i)*time.Millisecond))
			}
			p := r.policy(time.Hour)
			p.Limit = 3
			r.claims(p, "expired", "ready-0", "ready-1")
		},
	},
	{
		ID: "K2.reservation-for-ready", Says: "older expired runs never crowd out the ready one",
		run: func(r *rig) {
			for i := range 5 {
				r.put(fmt.Sprintf("expired-%d", i))
				r.take(fmt.Sprintf("expired-%d", i), time.Duration(i)*time.Millisecond)
			}
			r.putAt("ready", r.at(30*time.Minute))
			p := r.policy(time.Hour)
			p.Limit = 3
			r.claims(p, "ready", "expired-0", "expired-1")
		},
	},
	{
		ID: "K2.poison-reserves", Says: "an outcome of poison uses its class's reservation up",
		run: func(r *rig) {
			r.twoClasses()
			p := r.policy(time.Hour)
			p.Limit, p.MaxAttempts = 2, 1
			r.claims(p, "poison:expired-1", "ready-1")
		},
	},
	{
		ID: "K2.preference", Says: "at a limit of 1 the preferred class goes first, and falls through to the other when it is empty",
		run: func(r *rig) {
			r.twoClasses()
			p := r.policy(time.Hour)
			p.Limit, p.MaxAttempts, p.TTL = 1, 100, time.Minute
			p.Prefer = claim.Ready
			r.claims(p, "ready-1")
			r.claims(p, "ready-2")
			r.claims(p, "expired-1")
			r.putAt("ready-3", r.start)
			p.Prefer = claim.Expired
			r.claims(p, "expired-2")
			r.claims(p, "ready-3")
			r.claims(p)
		},
	},
	{
		ID: "K2.no-preference", Says: "at a limit of 1 without a preference the older of the two heads goes first",
		run: func(r *rig) {
			r.twoClasses()
			p := r.policy(time.Hour)
			p.Limit = 1
			for _, id := range []string{"expired-1", "expired-2", "ready-1", "ready-2"} {
				r.claims(p, id)
			}
		},
	},
	{
		ID: "K2.preference-ignored", Says: "from a limit of 2 on the preference is ignored",
		run: func(r *rig) {
			r.twoClasses()
			p := r.policy(time.Hour)
			p.Limit, p.Prefer = 3, claim.Ready
			r.claims(p, "expired-1", "expired-2", "ready-1")
		},
	},
}

// twoClasses makes two expired runs, and two ready ones that became eligible after them.
func (r *rig) twoClasses() {
	r.Helper()
	for i, id := range []string{"expired-1", "expired-2"} {
		r.put(id)
		r.take(id, time.Duration(i+1)*time.Second)
	}
	r.putAt("ready-1", r.at(time.Minute))
	r.putAt("ready-2", r.at(2*time.Minute))
}

// K3: what happens to each.
var outcomeCases = []Case{
	{
		ID: "K3.lease", Says: "a lease names run, owner, graph, sequence, token, claimed-at, attempt, TTL and class",
		run: func(r *rig) {
			d := r.putFor(acme, "a", r.start)
			l := r.take("a", time.Second)
			if l.Token == "" {
				r.Errorf("the lease has no token")
			}
			want := claim.Lease{
				Run: "a", Owner: acme, GraphID: r.ref.ID, GraphHash: r.ref.Hash, Seq: 1,
				ClaimedAt: r.at(time.Second), Attempt: 1, TTL: ttl, Class: claim.Ready,
			}
			r.same("the lease", withoutToken(l), want)
			r.commit(l, d, toNow, 2*time.Second)
			want.Seq, want.ClaimedAt = 2, r.at(3*time.Second)
			r.same("the lease after a commit", withoutToken(r.take("a", 3*time.Second)), want)
		},
	},
	{
		ID: "K3.claims", Says: "a launch sets claimed-at to now, clears the wake and counts the attempt",
		run: func(r *rig) {
			r.put("a")
			r.take("a", time.Second)
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(time.Second), Attempts: 1})
			r.take("a", time.Second+ttl+tick)
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(time.Second + ttl + tick), Attempts: 2})
		},
	},
	{
		ID: "K3.poison", Says: "at the maximum a run is poisoned now: no claim, no wake, no lease, attempts unchanged",
		run: func(r *rig) {
			r.putFor(acme, "a", r.start)
			p := r.policy(0)
			p.MaxAttempts = 1
			l := r.claims(p, "a").Leases[0]
			p.Now = r.at(time.Hour)
			batch := r.claims(p, "poison:a")
			poison := claim.Poison{At: r.at(time.Hour), Reason: claim.MaxAttemptsExceeded}
			r.same("the outcome", batch.Poisoned, []claim.PoisonedRun{
				{Run: "a", Owner: acme, GraphID: r.ref.ID, GraphHash: r.ref.Hash, Poison: poison},
			})
			r.expect("a", columns{Status: run.Running, Attempts: 1, Poison: poison})
			r.refused("RefreshClaim under the token that poison took", r.store.RefreshClaim(r.ctx, "a", l.Token, r.at(time.Hour)), backend.ErrClaimLost)
		},
	},
	{
		ID: "K3.poison-ready", Says: "a ready run at the maximum is poisoned as well, and its wake goes",
		run: func(r *rig) {
			r.put("a")
			l := r.take("a", 0)
			r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.at(time.Second)}))
			p := r.policy(2 * time.Second)
			p.MaxAttempts = 1
			r.claims(p, "poison:a")
			r.expect("a", columns{
				Status: run.Running, Attempts: 1,
				Poison: claim.Poison{At: r.at(2 * time.Second), Reason: claim.MaxAttemptsExceeded},
			})
		},
	},
	{
		ID: "K3.max-attempts", Says: "a maximum of N is exactly N launches; the next need poisons",
		run: func(r *rig) {
			for n := 1; n <= 3; n++ {
				id := fmt.Sprintf("max-%d", n)
				r.put(id)
				p := r.policy(0)
				p.MaxAttempts, p.TTL = n, 0
				for attempt := 1; attempt <= n; attempt++ {
					p.Now = p.Now.Add(time.Second)
					if l := r.claims(p, id).Leases[0]; l.Attempt != attempt {
						r.Errorf("launch %d of %d is attempt %d", attempt, n, l.Attempt)
					}
				}
				p.Now = p.Now.Add(time.Second)
				r.claims(p, "poison:"+id)
				p.Now = p.Now.Add(time.Hour)
				r.claims(p)
			}
		},
	},
	{
		ID: "K3.max-of-the-claimer", Says: "the maximum that counts is the claimer's of now",
		run: func(r *rig) {
			r.put("a")
			p := r.policy(0)
			p.TTL = 0
			for i := range 3 {
				p.Now = r.at(time.Duration(i) * time.Second)
				r.claims(p, "a")
			}
			p.Now, p.MaxAttempts = r.at(time.Minute), 4
			r.claims(p, "a")
			p.Now, p.MaxAttempts = r.at(time.Hour), 2
			r.claims(p, "poison:a")
			r.expect("a", columns{
				Status: run.Running, Attempts: 4,
				Poison: claim.Poison{At: r.at(time.Hour), Reason: claim.MaxAttemptsExceeded},
			})
		},
	},
	{
		ID: "K3.reset-by-commit", Says: "a commit starts the count of attempts anew",
		run: func(r *rig) {
			d := r.put("a")
			p := r.policy(0)
			p.MaxAttempts, p.TTL = 2, 0
			for round := range 3 {
				p.Now = r.at(time.Duration(round) * time.Minute)
				r.claims(p, "a")
				p.Now = p.Now.Add(time.Second)
				l := r.claims(p, "a").Leases[0]
				if l.Attempt != 2 {
					r.Errorf("round %d: the second launch is attempt %d", round, l.Attempt)
				}
				d = r.commit(l, d, toNow, time.Duration(round)*time.Minute+2*time.Second)
			}
		},
	},
}
