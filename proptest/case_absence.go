package proptest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// A7 and A8: tokens and owners.
var tokenCases = []Case{
	{
		ID: "A7.unique", Says: "no token is issued twice: not to another run, not to the same one again",
		run: func(r *rig) {
			for i := range 40 {
				r.put(fmt.Sprintf("run-%d", i))
			}
			seen := map[claim.Token]string{}
			for round := range 5 {
				p := r.policy(time.Duration(round) * (ttl + time.Second))
				p.Limit, p.MaxAttempts = 100, 100
				batch := r.claim(p)
				if len(batch.Leases) != 40 {
					r.Fatalf("round %d leased %d of 40 runs", round, len(batch.Leases))
				}
				for _, l := range batch.Leases {
					if l.Token == "" {
						r.Fatalf("run %s was leased without a token", l.Run)
					}
					if other, dup := seen[l.Token]; dup {
						r.Fatalf("run %s got the token of run %s", l.Run, other)
					}
					seen[l.Token] = l.Run
				}
			}
		},
	},
	{
		ID: "A8.owner", Says: "the owner is the argument of the insert for good, whatever a document says",
		run: func(r *rig) {
			in := r.draft("a", func(in *backend.Initialization) {
				in.Document.Metadata = map[string]string{"owner": "globex", "tenant": "globex", "tenant_id": "globex"}
			})
			r.insert(acme, in)
			l := r.take("a", 0)
			if l.Owner != acme {
				r.Errorf("the lease names the owner %v", l.Owner)
			}
			d := r.commit(l, in.Document, toNow, 0)
			r.mutate("a", func(current *run.Document) run.Proposal { return next(current, toNow, r.start, r.start) })
			r.same("the metadata", d.Metadata, in.Document.Metadata)
			if o := r.inspect("a").Owner; o != acme {
				r.Errorf("the owner became %v", o)
			}
			if _, err := r.store.FetchRun(r.ctx, backend.Of(globex), "a"); !errors.Is(err, backend.ErrNotFound) {
				r.Errorf("the tenant that the metadata names sees the run: %v", err)
			}
		},
	},
}

// A6: absence.
var absenceCases = []Case{
	{
		ID: "A6.same-answer", Says: "an absent run and a run of another scope give the same answer, word for word",
		run: func(r *rig) {
			r.putFor(acme, "there", r.start)
			for _, scope := range []backend.Scope{backend.Of(globex), backend.Of(tenantless)} {
				for _, c := range inScope(scope) {
					r.untouched(c.name, func() {
						hidden, absent := c.with(r, "there"), c.with(r, "gone!")
						r.refused(c.name+" of a run of another scope", hidden, backend.ErrNotFound)
						r.refused(c.name+" of an absent run", absent, backend.ErrNotFound)
						if hidden != nil && absent != nil && strings.ReplaceAll(hidden.Error(), "there", "") != strings.ReplaceAll(absent.Error(), "gone!", "") {
							r.Errorf("%s tells a hidden run (%q) from an absent one (%q)", c.name, hidden, absent)
						}
					})
				}
			}
		},
	},
	{
		ID: "A6.tenantless", Says: "the tenantless scope does not see tenants' runs, and no tenant sees tenantless ones",
		run: func(r *rig) {
			r.put("nobody's")
			r.putFor(acme, "acme's", r.start)
			for _, c := range inScope(backend.Of(acme)) {
				r.refused(c.name+" of a tenantless run by a tenant", c.with(r, "nobody's"), backend.ErrNotFound)
			}
			for _, c := range inScope(backend.Of(tenantless)) {
				r.refused(c.name+" of a tenant's run by the tenantless scope", c.with(r, "acme's"), backend.ErrNotFound)
			}
		},
	},
	{
		ID: "A6.visible", Says: "a run is visible to the system and to its owner",
		run: func(r *rig) {
			r.putFor(acme, "a", r.start)
			r.put("b")
			for id, scope := range map[string]backend.Scope{"a": backend.Of(acme), "b": backend.Of(tenantless)} {
				for _, s := range []backend.Scope{scope, backend.System()} {
					_, err := r.store.FetchRun(r.ctx, s, id)
					r.ok("FetchRun of "+id, err)
					_, err = r.store.InspectRun(r.ctx, s, id)
					r.ok("InspectRun of "+id, err)
					_, err = r.store.FetchEvent(r.ctx, s, id, 1)
					r.ok("FetchEvent of "+id, err)
					_, err = r.store.LatestEvent(r.ctx, s, id)
					r.ok("LatestEvent of "+id, err)
					_, err = r.store.ListEvents(r.ctx, s, id, backend.EventQuery{Limit: 1})
					r.ok("ListEvents of "+id, err)
					r.ok("RetryPoisonedRun of "+id, r.store.RetryPoisonedRun(r.ctx, s, id, r.start))
				}
			}
		},
	},
	{
		ID: "A6.claims-of-nothing", Says: "claim operations on an absent run are a lost claim, a success and stale, in that order",
		run: func(r *rig) {
			r.put("a")
			r.untouched("claim operations on an absent run", func() {
				r.refused("RefreshClaim", r.store.RefreshClaim(r.ctx, "gone", "token", r.start), backend.ErrClaimLost)
				r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "gone", "token", claim.ReleasePolicy{Now: r.start}))
				d, err := r.store.AbandonClaim(r.ctx, "gone", "token", claim.AbandonPolicy{Now: r.start, ExpectedSeq: 1, MaxAbandons: 1})
				r.ok("AbandonClaim", err)
				if d != claim.Stale {
					r.Errorf("AbandonClaim answered %v; it must be stale", d)
				}
			})
		},
	},
	{
		ID: "A6.infrastructure", Says: "a failure below the contract is never absence, a lost claim or a stale fence",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			ended, cancel := context.WithCancel(r.ctx)
			cancel()
			// The commit comes last, since in a store that needs no context it succeeds.
			for _, c := range []call{
				{"FetchRun", func(r *rig, id string) error { _, err := r.store.FetchRun(ended, backend.System(), id); return err }},
				{"InspectRun", func(r *rig, id string) error { _, err := r.store.InspectRun(ended, backend.System(), id); return err }},
				{"FetchEvent", func(r *rig, id string) error {
					_, err := r.store.FetchEvent(ended, backend.System(), id, 1)
					return err
				}},
				{"RefreshClaim", func(r *rig, id string) error { return r.store.RefreshClaim(ended, id, l.Token, r.start) }},
				{"Commit", func(r *rig, _ string) error {
					_, err := r.store.Commit(ended, backend.System(), backend.Commit{
						Proposal: next(d, toNow, r.start, r.start), CheckpointID: r.commitID(), Token: l.Token,
					})
					return err
				}},
			} {
				err := c.with(r, "a")
				if err == nil {
					continue
				}
				for _, sentinel := range sentinels {
					if errors.Is(err, sentinel) {
						r.Errorf("%s with an ended context answered %q, as if the contract said so", c.name, err)
					}
				}
				if backend.Classify(err) == backend.Permanent {
					r.Errorf("%s with an ended context is classified permanent: %v", c.name, err)
				}
			}
		},
	},
	{
		ID: "A6.closed", Says: "a closed store answers with an error that is no answer of the contract but ErrClosed",
		run: func(r *rig) {
			r.put("a")
			r.ok("Close", r.store.Close())
			_, err := r.store.FetchRun(r.ctx, backend.System(), "a")
			r.refused("FetchRun of a closed store", err, backend.ErrClosed)
			_, err = r.store.ClaimDue(r.ctx, r.policy(0))
			r.refused("ClaimDue of a closed store", err, backend.ErrClosed)
		},
	},
}

// inScope are the operations on one run in a scope.
func inScope(scope backend.Scope) []call {
	return []call{
		{"FetchRun", func(r *rig, id string) error { _, err := r.store.FetchRun(r.ctx, scope, id); return err }},
		{"InspectRun", func(r *rig, id string) error { _, err := r.store.InspectRun(r.ctx, scope, id); return err }},
		{"RetryPoisonedRun", func(r *rig, id string) error { return r.store.RetryPoisonedRun(r.ctx, scope, id, r.start) }},
		{"Commit", func(r *rig, id string) error {
			p := next(opening(id, r.ref, r.start, "").Document, toNow, r.start, r.start)
			_, err := r.store.Commit(r.ctx, scope, backend.Commit{Proposal: p, CheckpointID: r.commitID(), Token: "token"})
			return err
		}},
		{"MutateRun", func(r *rig, id string) error {
			_, err := r.store.MutateRun(r.ctx, scope, id, r.commitID(), r.never("MutateRun"))
			return err
		}},
		{"FetchEvent", func(r *rig, id string) error { _, err := r.store.FetchEvent(r.ctx, scope, id, 1); return err }},
		{"LatestEvent", func(r *rig, id string) error { _, err := r.store.LatestEvent(r.ctx, scope, id); return err }},
		{"ListEvents", func(r *rig, id string) error {
			_, err := r.store.ListEvents(r.ctx, scope, id, backend.EventQuery{Limit: 1})
			return err
		}},
	}
}

// fence is the typed answer of a stale fence.
func (r *rig) fence(what string, err error, want checkpoint.FenceError) {
	r.Helper()
	r.refused(what, err, checkpoint.ErrStaleFence)
	var fence *checkpoint.FenceError
	if !errors.As(err, &fence) {
		if err != nil {
			r.Errorf("%s answered %T; it must answer *checkpoint.FenceError", what, err)
		}
		return
	}
	r.same("the fence of "+what, *fence, want)
}
