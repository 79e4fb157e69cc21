package proptest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// K4: rows that are locked by someone else.
var lockCases = []Case{
	{
		ID: "K4.skipped", Says: "a locked row is skipped and not waited for, and claimed when it is free", needs: []need{lockRun},
		run: func(r *rig) {
			r.put("a")
			r.put("b")
			unlock := r.lock("a")
			r.claims(r.policy(0), "b")
			unlock()
			r.claims(r.policy(0), "a")
		},
	},
	{
		ID: "K4.locked-class", Says: "a class whose rows are all locked counts as empty, for the reservation and for the preference", needs: []need{lockRun},
		run: func(r *rig) {
			r.twoClasses()
			for _, id := range []string{"expired-1", "expired-2"} {
				defer r.lock(id)()
			}
			p := r.policy(time.Hour)
			p.Limit, p.Prefer = 1, claim.Expired
			r.claims(p, "ready-1")
			p.Limit = 2
			r.claims(p, "ready-2")
		},
	},
	{
		ID: "K4.next-of-class", Says: "when the head of a class is locked, the next one takes its place in the reservation", needs: []need{lockRun},
		run: func(r *rig) {
			r.twoClasses()
			defer r.lock("expired-1")()
			defer r.lock("ready-1")()
			p := r.policy(time.Hour)
			p.Limit = 2
			r.claims(p, "expired-2", "ready-2")
		},
	},
	{
		ID: "K4.filled", Says: "a batch is filled from unlocked rows, though every row of its first pages is locked", needs: []need{lockRun},
		run: func(r *rig) {
			var want []string
			for i := range 40 {
				id := fmt.Sprintf("run-%02d", i)
				r.put(id)
				if i < 35 {
					defer r.lock(id)()
				} else {
					want = append(want, id)
				}
			}
			p := r.policy(0)
			p.Limit = 5
			r.claims(p, want...)
		},
	},
}

// lock locks a run's row as another transaction does, until the returned function is called.
func (r *rig) lock(id string) (unlock func()) {
	r.Helper()
	unlock, err := r.hooks.LockRun(r.ctx, id)
	r.ok("LockRun of "+id, err)
	return unlock
}

// K5: interleave fairness.
var interleaveCases = []Case{
	{
		ID: "K5.breadth-first", Says: "with a limit not below the owners that have due runs, each gets one outcome before any gets two",
		run: func(r *rig) {
			r.backlog()
			p := r.interleaved(time.Minute, 3)
			r.claims(p, "acme-0", "globex-0", "nobody-0")
			p.Limit = 5
			got := r.claim(p)
			count := owners(got)
			if len(got.Leases) != 5 || count[acme] == 0 || count[globex] == 0 {
				r.Errorf("the second batch of 5 serves %v; acme and globex have runs left", count)
			}
			if count[acme]-count[globex] > 1 || count[globex]-count[acme] > 1 {
				r.Errorf("the second batch of 5 serves %v; acme and globex must be level", count)
			}
		},
	},
	{
		ID: "K5.age-within-an-owner", Says: "within an owner the older run goes first",
		run: func(r *rig) {
			r.backlog()
			for i := range 5 {
				p := r.interleaved(time.Minute, 2)
				batch := r.claim(p)
				for _, l := range batch.Leases {
					var later []string
					for _, s := range r.look().Runs {
						if s.Owner == l.Owner && !s.Wake.IsZero() && s.Run < l.Run {
							later = append(later, s.Run)
						}
					}
					if len(later) > 0 {
						r.Errorf("batch %d leases %s before %v of the same owner", i, l.Run, later)
					}
				}
			}
		},
	},
	{
		ID: "K5.across-polls", Says: "across polls a lone run is never behind another owner's backlog, at a limit of 1 either",
		run: func(r *rig) {
			r.backlog()
			served := map[backend.Owner]int{}
			for range 6 {
				for o, n := range owners(r.claim(r.interleaved(time.Minute, 1))) {
					served[o] += n
				}
			}
			if served[tenantless] != 1 || served[globex] < 2 || served[acme] < 2 {
				r.Errorf("six polls of one outcome serve acme %d, globex %d, the lone run %d times; no owner may wait for more than one round of the others",
					served[acme], served[globex], served[tenantless])
			}
		},
	},
	{
		ID: "K5.newcomer", Says: "an owner that comes later is served within one round, whatever the others wait for",
		run: func(r *rig) {
			for i := range 12 {
				r.putFor(acme, fmt.Sprintf("acme-%02d", i), r.at(time.Duration(i)*time.Second))
			}
			for range 3 {
				r.claim(r.interleaved(time.Minute, 2))
			}
			r.putFor(globex, "globex", r.at(time.Minute))
			first := outcomes(r.claim(r.interleaved(time.Minute, 2)))
			second := outcomes(r.claim(r.interleaved(time.Minute, 2)))
			if !slices.Contains(first, "globex") && !slices.Contains(second, "globex") {
				r.Errorf("the newcomer is in neither of the two batches %v and %v", first, second)
			}
		},
	},
	{
		ID: "K5.classes", Says: "the reservation of each class holds under interleaving, and owners come before age for each class's head",
		run: func(r *rig) {
			for i := range 4 {
				id := fmt.Sprintf("acme-expired-%d", i)
				r.putFor(acme, id, r.start)
				r.take(id, time.Duration(i)*time.Second)
			}
			r.putFor(globex, "globex-expired", r.start)
			r.take("globex-expired", 10*time.Second)
			for i := range 4 {
				r.putFor(acme, fmt.Sprintf("acme-ready-%d", i), r.at(time.Duration(i)*time.Second))
			}
			batch := r.claim(r.interleaved(time.Hour, 2))
			classes := map[claim.Class]int{}
			for _, l := range batch.Leases {
				classes[l.Class]++
			}
			if classes[claim.Ready] != 1 || classes[claim.Expired] != 1 {
				r.Errorf("a batch of 2 holds %d ready and %d expired runs; it must hold one of each", classes[claim.Ready], classes[claim.Expired])
			}
			if count := owners(batch); count[acme] != 1 || count[globex] != 1 {
				r.Errorf("a batch of 2 serves acme %d times and globex %d times; each must be served once", count[acme], count[globex])
			}
		},
	},
	{
		ID: "K5.accounting", Says: "attempts, poison and the limit are as without interleaving",
		run: func(r *rig) {
			r.putFor(acme, "a", r.start)
			r.putFor(globex, "b", r.start)
			p := r.interleaved(0, 10)
			p.MaxAttempts, p.TTL = 1, 0
			r.claims(p, "a", "b")
			p.Now = r.at(time.Second)
			r.claims(p, "poison:a", "poison:b")
			r.claims(p)
		},
	},
	{
		ID: "K5.one-owner", Says: "with a single owner interleaving is the order of age",
		run: func(r *rig) {
			for i := range 5 {
				r.putFor(acme, fmt.Sprintf("run-%d", i), r.at(time.Duration(-i)*time.Second))
			}
			r.claims(r.interleaved(0, 3), "run-4", "run-3", "run-2")
			r.claims(r.interleaved(0, 3), "run-1", "run-0")
		},
	},
}

// backlog makes runs that are due: eight of acme's, the oldest; six of globex's; one
// tenantless, the youngest.
func (r *rig) backlog() {
	r.Helper()
	for i := range 8 {
		r.putFor(acme, fmt.Sprintf("acme-%d", i), r.at(time.Duration(i)*time.Millisecond))
	}
	for i := range 6 {
		r.putFor(globex, fmt.Sprintf("globex-%d", i), r.at(time.Second+time.Duration(i)*time.Millisecond))
	}
	r.putAt("nobody-0", r.at(2*time.Second))
}

// interleaved is a claim under interleave fairness.
func (r *rig) interleaved(d time.Duration, limit int) claim.Policy {
	p := r.policy(d)
	p.Limit, p.Fairness = limit, claim.Interleave
	return p
}

// owners counts the outcomes of each owner.
func owners(b claim.Batch) map[backend.Owner]int {
	count := map[backend.Owner]int{}
	for _, l := range b.Leases {
		count[l.Owner]++
	}
	for _, p := range b.Poisoned {
		count[p.Owner]++
	}
	return count
}

// K6: claims with documents.
var documentCases = []Case{
	{
		ID: "K6.documents", Says: "leases come with their documents, index for index, and the claim is the same as without", needs: []need{claimDocuments},
		run: func(r *rig) {
			docs := map[string]*run.Document{}
			for i := range 4 {
				id := fmt.Sprintf("run-%d", i)
				docs[id] = r.put(id)
			}
			docs["run-1"] = r.commit(r.only("run-1", 0), docs["run-1"], toNow, 0)
			p := r.policy(time.Hour)
			p.Limit = 3
			batch := r.claimDocuments(p)
			if len(batch.Leases) != 3 || len(batch.Documents) != 3 {
				r.Fatalf("a batch of 3 holds %d leases and %d documents", len(batch.Leases), len(batch.Documents))
			}
			r.same("the batch's now", batch.Now, r.at(time.Hour))
			for i, l := range batch.Leases {
				r.ok("the document of "+l.Run, batch.Documents[i].Err)
				r.same("the document of "+l.Run, batch.Documents[i].Document, docs[l.Run])
				if l.Seq != docs[l.Run].Seq {
					r.Errorf("the lease of %s has the sequence %d, its document %d", l.Run, l.Seq, docs[l.Run].Seq)
				}
				r.expect(l.Run, columns{Status: run.Running, ClaimedAt: r.at(time.Hour), Attempts: r.inspect(l.Run).Attempts})
			}
		},
	},
	{
		ID: "K6.poison", Says: "a poisoned outcome has no document", needs: []need{claimDocuments},
		run: func(r *rig) {
			r.put("a")
			p := r.policy(0)
			p.MaxAttempts, p.TTL = 1, 0
			r.claims(p, "a")
			p.Now = r.at(time.Second)
			batch := r.claimDocuments(p)
			if len(batch.Leases)+len(batch.Documents) != 0 || len(batch.Poisoned) != 1 {
				r.Errorf("the batch holds %d leases, %d documents, %d poisoned runs", len(batch.Leases), len(batch.Documents), len(batch.Poisoned))
			}
		},
	},
	{
		ID: "K6.undecodable", Says: "a document that does not decode yields its lease with an error, and the others come whole", needs: []need{claimDocuments, writeDocument},
		run: func(r *rig) {
			r.put("bad")
			r.putAt("good", r.at(time.Second))
			r.ok("WriteDocument", r.hooks.WriteDocument(r.ctx, "bad", []byte(`{"format":1,`)))
			batch := r.claimDocuments(r.policy(time.Minute))
			if got := outcomes(batch.Batch); !slices.Equal(got, []string{"bad", "good"}) || len(batch.Documents) != 2 {
				r.Fatalf("the batch holds %v and %d documents", got, len(batch.Documents))
			}
			for i, l := range batch.Leases {
				switch d := batch.Documents[i]; l.Run {
				case "bad":
					r.corrupt("the claimed document", d.Err, "bad")
					if d.Document != nil || l.Token == "" {
						r.Errorf("the lease of the corrupt document must be whole, and its document absent")
					}
					r.ok("ReleaseClaim of the corrupt run", r.store.ReleaseClaim(r.ctx, l.Run, l.Token, claim.ReleasePolicy{Now: r.at(time.Minute), After: time.Hour, Refund: true}))
				default:
					r.ok("the document of "+l.Run, d.Err)
				}
			}
		},
	},
	{
		ID: "K6.newer-format", Says: "a document of a newer format yields its lease with an incompatibility error", needs: []need{claimDocuments, writeDocument},
		run: func(r *rig) {
			d := r.put("a")
			raw, err := run.Encode(d)
			r.ok("run.Encode", err)
			newer, err := newerFormat(raw)
			r.ok("making a newer format", err)
			r.ok("WriteDocument", r.hooks.WriteDocument(r.ctx, "a", newer))
			batch := r.claimDocuments(r.policy(0))
			if len(batch.Leases) != 1 || len(batch.Documents) != 1 {
				r.Fatalf("the batch holds %d leases and %d documents", len(batch.Leases), len(batch.Documents))
			}
			if err := batch.Documents[0].Err; !errors.Is(err, run.ErrFormat) || !errors.Is(err, backend.ErrCorrupt) {
				r.Errorf("a document of a newer format answers %v; it must match run.ErrFormat and ErrCorrupt", err)
			}
		},
	},
}

// claimDocuments claims with documents and ends the case if that fails.
func (r *rig) claimDocuments(p claim.Policy) backend.ClaimedBatch {
	r.Helper()
	batch, err := r.store.Features().ClaimDocuments.ClaimDueDocuments(r.ctx, p)
	r.ok("ClaimDueDocuments", err)
	return batch
}

// only claims everything that is due, hands all but one run back and returns its lease.
func (r *rig) only(id string, d time.Duration) claim.Lease {
	r.Helper()
	p := r.policy(d)
	p.Limit = backend.MaxLimit
	var kept claim.Lease
	for _, l := range r.claim(p).Leases {
		if l.Run == id {
			kept = l
			continue
		}
		r.ok("ReleaseClaim", r.store.ReleaseClaim(r.ctx, l.Run, l.Token, claim.ReleasePolicy{Now: r.at(d), Refund: true}))
	}
	if kept.Run == "" {
		r.Fatalf("run %s is not due at start+%v", id, d)
	}
	return kept
}
