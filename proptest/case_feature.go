package proptest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// X2, X4 to X6, X9 and X10. X1 is R3, X3 is K6, X8 is F2.
var featureCases = []Case{
	{
		ID: "X1.undeclared", Says: "a store that does not start runs claimed says so, and stores nothing", needs: []need{lacks(startClaimed)},
		run: func(r *rig) {
			r.publish(tenantless, r.ref.ID, 0)
			_, err := r.store.InsertRun(r.ctx, tenantless, r.draft("a", claimed))
			r.refused("InsertRun with a claim", err, backend.ErrUnsupported)
			r.absent("a")
		},
	},
	{
		ID: "X4.undeclared", Says: "a store that does not filter claims says so, and claims nothing", needs: []need{lacks(claimFilter)},
		run: func(r *rig) {
			r.put("a")
			r.untouched("a filtered claim", func() {
				for _, f := range []claim.Filter{{Runs: []string{"a"}}, {Graphs: []claim.GraphFilter{{ID: r.ref.ID}}}} {
					p := r.policy(0)
					p.Filter = f
					_, err := r.store.ClaimDue(r.ctx, p)
					r.refused("ClaimDue with a filter", err, backend.ErrUnsupported)
				}
			})
		},
	},
	{
		ID: "X10.undeclared", Says: "a store without a cap per owner says so, and claims nothing", needs: []need{lacks(ownerCap)},
		run: func(r *rig) {
			r.put("a")
			r.untouched("a capped claim", func() {
				p := r.policy(0)
				p.OwnerCap = 1
				_, err := r.store.ClaimDue(r.ctx, p)
				r.refused("ClaimDue with a cap", err, backend.ErrUnsupported)
			})
		},
	},
	{
		ID: "X2.inserts", Says: "inserts in a batch answer each as a single one would, and a bad member harms no other", needs: []need{batches},
		run: func(r *rig) {
			r.put("taken")
			ins := []backend.Initialization{
				r.draft("a", nil),
				r.draft("taken", nil),
				r.draft("b", func(in *backend.Initialization) { in.Key = "k" }),
				r.draft("c", func(in *backend.Initialization) { in.Type = checkpoint.StepCommitted }),
				r.draft("d", func(in *backend.Initialization) { in.Document.Graph.ID = "absent" }),
				r.draft("e", func(in *backend.Initialization) { in.Key = "k" }),
				r.draft("f", nil),
				r.draft("", nil),
			}
			got := r.store.Features().Batches.InsertRuns(r.ctx, tenantless, ins)
			if len(got) != len(ins) {
				r.Fatalf("a batch of %d got %d answers", len(ins), len(got))
			}
			for i, want := range []error{nil, backend.ErrConflict, nil, backend.ErrInvalidCommit, backend.ErrNotFound, nil, nil, backend.ErrInvalidArgument} {
				if want != nil {
					r.refused(fmt.Sprintf("member %d", i), got[i].Err, want)
				} else {
					r.ok(fmt.Sprintf("member %d", i), got[i].Err)
				}
			}
			r.same("the answer a", got[0].Inserted, backend.Inserted{Run: "a"})
			// One of the two keyed members comes first; which one is not said.
			first, second := got[2].Inserted, got[5].Inserted
			if first.Existing {
				first, second = second, first
			}
			if first.Existing || !second.Existing || first.Run != second.Run {
				r.Errorf("of two members under one key one must be existing: %+v, %+v", got[2].Inserted, got[5].Inserted)
			}
			r.lists(backend.System(), backend.Query{}, "taken", "f", first.Run, "a")
			for _, i := range []int{0, 6} {
				r.document(ins[i].Document)
				r.events(ins[i].Document.ID, ins[i].Events)
			}
			for _, again := range r.store.Features().Batches.InsertRuns(r.ctx, tenantless, []backend.Initialization{ins[0], ins[6]}) {
				r.ok("a member sent again", again.Err)
				if !again.Replayed {
					r.Errorf("the member %s sent again must be a replay", again.Run)
				}
			}
		},
	},
	{
		ID: "X2.inserts-claimed", Says: "a batch may start runs claimed, each with a lease of its own", needs: []need{batches, startClaimed},
		run: func(r *rig) {
			r.publish(acme, r.ref.ID, 0)
			ins := []backend.Initialization{r.draft("a", claimed), r.draft("b", nil), r.draft("c", claimed)}
			got := r.store.Features().Batches.InsertRuns(r.ctx, acme, ins)
			if len(got) != 3 {
				r.Fatalf("a batch of 3 got %d answers", len(got))
			}
			for i, in := range ins {
				r.ok("member "+in.Document.ID, got[i].Err)
				if (got[i].Lease != nil) != (in.Claim != nil) {
					r.Fatalf("member %s has a lease: %v", in.Document.ID, got[i].Lease != nil)
				}
				if in.Claim != nil {
					r.expect(in.Document.ID, columns{Status: run.Running, ClaimedAt: r.start, Attempts: 1})
				}
			}
			if got[0].Lease.Run != "a" || got[2].Lease.Run != "c" || got[0].Lease.Token == got[2].Lease.Token {
				r.Errorf("the leases are of the runs %q and %q, or share a token", got[0].Lease.Run, got[2].Lease.Run)
			}
			r.commit(*got[2].Lease, ins[2].Document, toDone, 0)
		},
	},
	{
		ID: "X2.refreshes", Says: "refreshes in a batch answer each as a single one would, in the order given", needs: []need{batches},
		run: func(r *rig) {
			held := func(id string) backend.Held {
				r.put(id)
				return backend.Held{Run: id, Token: r.take(id, 0).Token}
			}
			a, b, c := held("a"), held("b"), held("c")
			r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "b", b.Token, claim.ReleasePolicy{Now: r.at(time.Hour)}))
			claims := []backend.Held{a, b, {Run: "gone", Token: "token"}, {Run: "c", Token: a.Token}, c, {Run: "", Token: "token"}, {Run: "a"}}
			got := r.store.Features().Batches.RefreshClaims(r.ctx, claims, r.at(time.Minute))
			if len(got) != len(claims) {
				r.Fatalf("a batch of %d got %d answers", len(claims), len(got))
			}
			for i, want := range []error{nil, backend.ErrClaimLost, backend.ErrClaimLost, backend.ErrClaimLost, nil, backend.ErrInvalidArgument, backend.ErrInvalidArgument} {
				if want != nil {
					r.refused(fmt.Sprintf("member %d", i), got[i], want)
				} else {
					r.ok(fmt.Sprintf("member %d", i), got[i])
				}
			}
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(time.Minute), Attempts: 1})
			r.expect("b", columns{Status: run.Running, Wake: r.at(time.Hour), Attempts: 1})
			r.expect("c", columns{Status: run.Running, ClaimedAt: r.at(time.Minute), Attempts: 1})
			for _, err := range r.store.Features().Batches.RefreshClaims(r.ctx, []backend.Held{a, c}, r.start) {
				r.ok("an older refresh", err)
			}
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.at(time.Minute), Attempts: 1})
		},
	},
	{
		ID: "X2.refresh-busy", Says: "a batched refresh reports rows that are locked by others as busy, not as lost, and does not wait", needs: []need{batches, lockRun},
		run: func(r *rig) {
			r.put("a")
			r.put("b")
			batch := r.claims(r.policy(0), "a", "b")
			unlock := r.lock("a")
			claims := []backend.Held{{Run: "a", Token: batch.Leases[0].Token}, {Run: "b", Token: batch.Leases[1].Token}}
			got := r.store.Features().Batches.RefreshClaims(r.ctx, claims, r.at(time.Second))
			unlock()
			if len(got) != 2 {
				r.Fatalf("a batch of 2 got %d answers", len(got))
			}
			r.refused("the locked member", got[0], backend.ErrBusy)
			r.ok("the other member", got[1])
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.start, Attempts: 1})
		},
	},
	{
		ID: "X4.graphs", Says: "a filter by graphs claims its runs only and touches no other, not even their counters", needs: []need{claimFilter},
		run: func(r *rig) {
			second := r.publish(tenantless, r.ref.ID, 1)
			another := r.publish(tenantless, "another", 0)
			of := func(id string, ref graph.Ref, wake time.Duration) {
				r.insert(tenantless, r.draft(id, func(in *backend.Initialization) {
					in.Document.Graph, in.Schedule = ref, checkpoint.Schedule{Kind: checkpoint.ReleaseAt, At: r.at(wake)}
				}))
			}
			of("first", r.ref, 0)
			of("second", second, time.Second)
			of("another", another, 2*time.Second)
			filtered := func(want []string, graphs ...claim.GraphFilter) {
				r.Helper()
				p := r.policy(time.Minute)
				p.MaxAttempts, p.TTL, p.Limit = 1, time.Minute, 1
				p.Filter = claim.Filter{Graphs: graphs}
				outside := r.look()
				r.claims(p, want...)
				for id, before := range outside.Infos {
					if !slices.Contains(want, id) {
						r.same("the run "+id+" outside the filter", r.inspect(id), before)
					}
				}
			}
			filtered(nil, claim.GraphFilter{ID: "absent"})
			filtered([]string{"second"}, claim.GraphFilter{ID: r.ref.ID, Hash: second.Hash})
			filtered([]string{"another"}, claim.GraphFilter{ID: "absent"}, claim.GraphFilter{ID: "another"})
			filtered(nil, claim.GraphFilter{ID: "another", Hash: second.Hash})
			filtered([]string{"first"}, claim.GraphFilter{ID: r.ref.ID})
		},
	},
	{
		ID: "X4.runs", Says: "a filter by runs claims those only, and together with graphs only what both admit", needs: []need{claimFilter},
		run: func(r *rig) {
			for i, id := range []string{"a", "b", "c"} {
				r.putAt(id, r.at(time.Duration(i)*time.Second))
			}
			p := r.policy(time.Minute)
			p.Filter = claim.Filter{Runs: []string{"c", "gone"}, Graphs: []claim.GraphFilter{{ID: "absent"}}}
			r.claims(p)
			p.Filter.Graphs = nil
			r.claims(p, "c")
			p.Filter = claim.Filter{Runs: []string{"c"}}
			r.claims(p)
			p.Filter = claim.Filter{}
			r.claims(p, "a", "b")
		},
	},
	{
		ID: "X4.poison", Says: "a run outside the filter is not poisoned, however exhausted", needs: []need{claimFilter},
		run: func(r *rig) {
			r.put("a")
			r.put("b")
			p := r.policy(0)
			p.MaxAttempts, p.TTL = 1, 0
			r.claims(p, "a", "b")
			p.Now, p.Filter = r.at(time.Second), claim.Filter{Runs: []string{"b"}}
			r.claims(p, "poison:b")
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.start, Attempts: 1})
		},
	},
	{
		ID: "X5.live", Says: "a subscription says when it is live, and after that every wake is seen or its loss announced", needs: []need{wakes},
		run: func(r *rig) {
			woken := r.subscribe()
			r.live(woken)
			var l claim.Lease
			r.publish(tenantless, r.ref.ID, 0)
			for _, wake := range []struct {
				name string
				do   func()
			}{
				{"an insert", func() { r.put("a") }},
				{"a release", func() {
					l = r.take("a", 0)
					r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "a", l.Token, claim.ReleasePolicy{Now: r.start}))
				}},
				{"a commit that releases", func() {
					l = r.take("a", 0)
					r.commit(l, r.inspect("a").Document, toNow, 0)
				}},
				{"an abandon", func() {
					l = r.take("a", 0)
					r.abandons(l, claim.AbandonPolicy{Now: r.start, ExpectedSeq: 2, MaxAbandons: 5}, claim.Rescheduled)
				}},
				{"a mutation", func() {
					r.mutate("a", func(d *run.Document) run.Proposal { return next(d, toNow, r.start, r.start) })
				}},
				{"a recovery", func() {
					p := r.policy(0)
					p.MaxAttempts, p.TTL = 1, 0
					r.claims(p, "a")
					p.Now = r.at(tick)
					r.claims(p, "poison:a")
					r.ok("RetryPoisonedRun", r.store.RetryPoisonedRun(r.ctx, backend.System(), "a", r.start))
				}},
			} {
				r.signalled(woken, wake.name, wake.do)
			}
		},
	},
	{
		ID: "X5.ends", Says: "a subscription's channel is closed when its context ends", needs: []need{wakes},
		run: func(r *rig) {
			ctx, cancel := context.WithCancel(r.ctx)
			woken, err := r.store.Features().Wakes.Subscribe(ctx)
			r.ok("Subscribe", err)
			cancel()
			for {
				select {
				case _, open := <-woken:
					if !open {
						return
					}
				case <-r.ctx.Done():
					r.Fatalf("the channel was not closed")
				}
			}
		},
	},
	{
		ID: "X5.two", Says: "two subscriptions are both woken, and one that nobody reads holds nothing up", needs: []need{wakes},
		run: func(r *rig) {
			_ = r.subscribe()
			woken := r.subscribe()
			r.live(woken)
			for i := range 20 {
				r.signalled(woken, "an insert", func() { r.put(fmt.Sprintf("run-%d", i)) })
			}
		},
	},
	{
		ID: "X6.monotone", Says: "the clock does not go back, and is in UTC and whole microseconds", needs: []need{ownClock},
		run: func(r *rig) {
			var last time.Time
			for range 100 {
				now, err := r.store.Features().Clock.Now(r.ctx)
				r.ok("Now", err)
				if now.Before(last) {
					r.Fatalf("the clock went back from %v to %v", last, now)
				}
				if now.Location() != time.UTC || !now.Equal(now.Truncate(time.Microsecond)) {
					r.Fatalf("the clock says %v; it must say an instant in UTC and whole microseconds", now)
				}
				last = now
			}
		},
	},
	{
		ID: "X6.used", Says: "the instant that ClaimDue used lies on the clock", needs: []need{ownClock},
		run: func(r *rig) {
			r.putAt("a", time.Unix(0, 0))
			p := r.policy(0)
			p.Now = time.Time{}
			before, err := r.store.Features().Clock.Now(r.ctx)
			r.ok("Now", err)
			used := r.claims(p, "a").Now
			after, err := r.store.Features().Clock.Now(r.ctx)
			r.ok("Now", err)
			if used.Before(before) || used.After(after) {
				r.Errorf("ClaimDue used %v; the clock said %v before it and %v after it", used, before, after)
			}
		},
	},
	{
		ID: "X6.set-back", Says: "a clock that is set back stands still, and refuses no write", needs: []need{ownClock, setClock},
		run: func(r *rig) {
			r.hooks.SetClock(r.at(time.Hour))
			first, err := r.store.Features().Clock.Now(r.ctx)
			r.ok("Now", err)
			r.hooks.SetClock(r.start)
			second, err := r.store.Features().Clock.Now(r.ctx)
			r.ok("Now", err)
			if second.Before(first) {
				r.Errorf("the clock went back from %v to %v", first, second)
			}
			in := r.draft("a", func(in *backend.Initialization) { in.Now = time.Time{} })
			r.insert(tenantless, in)
			p := r.policy(0)
			p.Now = time.Time{}
			r.commit(r.claims(p, "a").Leases[0], in.Document, toDone, 0)
		},
	},
	{
		ID: "X9.healthy", Says: "the audit finds nothing in a healthy store", needs: []need{audit},
		run: func(r *rig) {
			for _, e := range ends {
				d := r.put(string(e))
				r.commit(r.only(string(e), 0), d, e, 0)
			}
			r.sound("a store with a run at every end")
			r.put("poisoned")
			p := r.policy(time.Hour)
			p.MaxAttempts, p.TTL = 1, 0
			r.claim(p)
			p.Now = r.at(2 * time.Hour)
			r.claim(p)
			r.sound("a store with a poisoned run")
		},
	},
	{
		ID: "X9.finds", Says: "the audit finds a planted violation, and names its run alone", needs: []need{audit, writeDocument},
		run: func(r *rig) {
			r.put("sound")
			r.put("broken")
			r.ok("WriteDocument", r.hooks.WriteDocument(r.ctx, "broken", []byte(`{"format":`)))
			findings, err := r.hooks.Audit(r.ctx)
			r.ok("Audit", err)
			if len(findings) == 0 {
				r.Errorf("the audit does not find a document that does not decode")
			}
		},
	},
	{
		ID: "X10.cap", Says: "an owner never holds more claims than its cap, and others are not held up by it", needs: []need{ownerCap},
		run: func(r *rig) {
			for i := range 5 {
				r.putFor(acme, fmt.Sprintf("acme-%d", i), r.at(time.Duration(i)*time.Millisecond))
			}
			r.putFor(globex, "globex", r.at(time.Second))
			p := r.policy(time.Minute)
			p.OwnerCap = 2
			batch := r.claims(p, "acme-0", "acme-1", "globex")
			r.claims(p)
			r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, "acme-0", batch.Leases[0].Token, claim.ReleasePolicy{Now: r.at(time.Minute), After: time.Hour}))
			r.claims(p, "acme-2")
			p.OwnerCap = 3
			r.claims(p, "acme-3")
			p.OwnerCap = 0
			r.claims(p, "acme-4")
		},
	},
	{
		ID: "X10.expired", Says: "an expired claim counts until it is taken over, and is taken over at the cap", needs: []need{ownerCap},
		run: func(r *rig) {
			r.putFor(acme, "a", r.start)
			r.putFor(acme, "b", r.at(time.Second))
			p := r.policy(0)
			p.OwnerCap = 1
			r.claims(p, "a")
			p.Now = r.at(ttl + tick)
			r.claims(p, "a")
			p.Now = r.at(ttl + 2*tick)
			r.claims(p)
		},
	},
	{
		ID: "X10.concurrent", Says: "claimers at once do not exceed the cap together", needs: []need{ownerCap},
		run: func(r *rig) {
			for i := range 20 {
				r.putFor(acme, fmt.Sprintf("acme-%d", i), r.start)
			}
			batches := make([]claim.Batch, 8)
			r.together(len(batches), func(i int) error {
				p := r.policy(0)
				p.OwnerCap, p.Limit = 3, 2
				var err error
				batches[i], err = r.store.ClaimDue(r.ctx, p)
				return err
			})
			n := 0
			for _, b := range batches {
				n += len(b.Leases)
			}
			if n > 3 {
				r.Errorf("claimers at once took %d claims under a cap of 3", n)
			}
		},
	},
}

// subscribe subscribes to wakes and ends the case if that fails.
func (r *rig) subscribe() <-chan struct{} {
	r.Helper()
	woken, err := r.store.Features().Wakes.Subscribe(r.ctx)
	r.ok("Subscribe", err)
	return woken
}

// signalled requires a signal after do. Signals that were still to be read are read
// before, so that they are not taken for do's.
func (r *rig) signalled(woken <-chan struct{}, what string, do func()) {
	r.Helper()
	for read := true; read; {
		select {
		case _, read = <-woken:
		default:
			read = false
		}
	}
	do()
	r.awaits(woken, what)
}

// live waits until a subscription is live.
func (r *rig) live(woken <-chan struct{}) {
	r.Helper()
	r.awaits(woken, "the subscription going live")
}

func (r *rig) awaits(woken <-chan struct{}, what string) {
	r.Helper()
	select {
	case _, open := <-woken:
		if !open {
			r.Fatalf("the channel was closed before %s", what)
		}
	case <-r.ctx.Done():
		r.Fatalf("%s was not signalled", what)
	}
}

// sound requires that the audit finds nothing.
func (r *rig) sound(what string) {
	r.Helper()
	findings, err := r.hooks.Audit(r.ctx)
	r.ok("Audit", err)
	if len(findings) > 0 {
		r.Errorf("the audit of %s finds %q", what, findings)
	}
}
