package proptest

import (
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// S1: the five shapes of a stored run.
var shapeCases = []Case{
	{
		ID: "S1.ready", Says: "a run that is due has a wake and nothing else",
		run: func(r *rig) {
			r.put("a")
			r.expect("a", columns{Status: run.Running, Wake: r.start})
		},
	},
	{
		ID: "S1.scheduled", Says: "a run whose wake lies ahead has a wake and nothing else",
		run: func(r *rig) {
			r.putAt("a", r.at(time.Hour))
			r.claims(r.policy(0))
			r.expect("a", columns{Status: run.Running, Wake: r.at(time.Hour)})
		},
	},
	{
		ID: "S1.claimed", Says: "a claimed run has a claimed-at and no wake",
		run: func(r *rig) {
			r.put("a")
			r.take("a", time.Second)
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(time.Second), Attempts: 1})
		},
	},
	{
		ID: "S1.poisoned", Says: "a poisoned run is running and has neither wake nor claim",
		run: func(r *rig) {
			r.poison("a", time.Second)
			r.expect("a", columns{
				Status: run.Running, Attempts: 1,
				Poison: claim.Poison{At: r.at(time.Second), Reason: claim.MaxAttemptsExceeded},
			})
		},
	},
	{
		ID: "S1.waiting", Says: "a waiting run has neither wake nor claim",
		run: func(r *rig) {
			r.bring("a", toWaiting)
			r.expect("a", columns{Status: run.Waiting})
		},
	},
	{
		ID: "S1.finished", Says: "a finished run has neither wake nor claim, and only it has a finish instant",
		run: func(r *rig) {
			for _, e := range ends {
				id := string(e)
				r.bring(id, e)
				if e == toRetain || e == toNow || e == toAt {
					// Out of the way of the next claim.
					r.mutate(id, func(d *run.Document) run.Proposal { return next(d, toAt, r.start, r.at(time.Hour)) })
				} else {
					r.expect(id, columns{Status: e.status()})
				}
			}
			for _, s := range r.look().Runs {
				if finished := !s.FinishedAt.IsZero(); finished != (s.Status == run.Done || s.Status == run.Failed || s.Status == run.Cancelled) {
					r.Errorf("run %s is %s and its finish instant is %v", s.Run, s.Status, s.FinishedAt)
				}
			}
		},
	},
	{
		ID: "S1.derived", Says: "ready, scheduled, claimed, expired and poisoned are never statuses",
		run: func(r *rig) {
			r.poison("a", time.Second)
			r.putAt("b", r.at(time.Hour))
			r.put("c")
			r.take("c", time.Second)
			r.put("d")
			for _, s := range r.look().Runs {
				if s.Status != run.Running {
					r.Errorf("run %s has the status %q", s.Run, s.Status)
				}
			}
		},
	},
	{
		ID: "S1.lists-agree", Says: "a list shows the same operational state as an inspection",
		run: func(r *rig) {
			r.poison("a", time.Second)
			r.put("b")
			r.take("b", time.Second)
			l := r.take("b", 2*time.Second+ttl)
			_, err := r.store.AbandonClaim(r.ctx, "b", l.Token, claim.AbandonPolicy{
				Now: r.at(2*time.Second + ttl), ExpectedSeq: 1, MaxAbandons: 3, RetryAt: r.at(time.Hour),
			})
			r.ok("AbandonClaim", err)
			r.put("c")
			r.take("c", 3*time.Second+ttl)
			r.bring("d", toDone)
			f := r.put("f")
			r.commit(r.take("f", 4*time.Second+ttl), f, toRetain, 4*time.Second+ttl)
			e := r.put("e")
			r.commit(r.take("e", 4*time.Second+ttl), e, toNow, 5*time.Second+ttl)
			for _, s := range r.look().Runs {
				i := r.inspect(s.Run)
				r.same("the summary of "+s.Run, s, backend.Summary{
					Run: i.Document.ID, Owner: i.Owner, Graph: i.Document.Graph, Status: i.Document.Status, Seq: i.Document.Seq,
					StartedAt: i.Document.StartedAt, UpdatedAt: i.Document.UpdatedAt, FinishedAt: i.Document.FinishedAt,
					Wake: i.Wake, ClaimedAt: i.ClaimedAt, Attempts: i.Attempts, Abandons: i.Abandons, Poison: i.Poison,
				})
			}
		},
	},
}
