package proptest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// misshapen are edits that make of a retaining proposal what no state of its run could accept.
var misshapen = []struct {
	name string
	edit func(p *run.Proposal, d *run.Document)
}{
	{"no document", func(p *run.Proposal, _ *run.Document) { p.Document = nil }},
	{"a sequence that stands still", func(_ *run.Proposal, d *run.Document) { d.Seq-- }},
	{"a sequence that skips one", func(_ *run.Proposal, d *run.Document) { d.Seq++ }},
	{"an expected sequence that does not fit", func(p *run.Proposal, _ *run.Document) { p.Expected++ }},
	{"no type", func(p *run.Proposal, _ *run.Document) { p.Type = "" }},
	{"an unknown type", func(p *run.Proposal, _ *run.Document) { p.Type = "step_skipped" }},
	{"no schedule", func(p *run.Proposal, _ *run.Document) { p.Schedule = checkpoint.Schedule{} }},
	{"an unknown schedule", func(p *run.Proposal, _ *run.Document) { p.Schedule.Kind = checkpoint.ReleaseTerminal + 1 }},
	{"release-at without an instant", func(p *run.Proposal, _ *run.Document) { p.Schedule.Kind = checkpoint.ReleaseAt }},
	{"release-external for a running run", func(p *run.Proposal, _ *run.Document) { p.Schedule.Kind = checkpoint.ReleaseExternal }},
	{"release-terminal for a running run", func(p *run.Proposal, _ *run.Document) { p.Schedule.Kind = checkpoint.ReleaseTerminal }},
	{"the status created", func(_ *run.Proposal, d *run.Document) { d.Status = run.Created }},
	{"an unknown status", func(_ *run.Proposal, d *run.Document) { d.Status = "paused" }},
	{"done without a finish instant", func(p *run.Proposal, d *run.Document) {
		p.Schedule.Kind, d.Status, d.Pending = checkpoint.ReleaseTerminal, run.Done, nil
	}},
	{"failed without a failure", func(p *run.Proposal, d *run.Document) {
		p.Schedule.Kind, d.Status, d.Pending, d.FinishedAt = checkpoint.ReleaseTerminal, run.Failed, nil, p.Now
	}},
	{"an output before the end", func(_ *run.Proposal, d *run.Document) { d.Output = value.Value(`{}`) }},
	{"a finish instant before the end", func(p *run.Proposal, d *run.Document) { d.FinishedAt = p.Now }},
	{"a negative counter", func(_ *run.Proposal, d *run.Document) { d.Step = -1 }},
	{"an event of another run", func(p *run.Proposal, _ *run.Document) { p.Events[0].Run = "other" }},
	{"an event with the sequence 0", func(p *run.Proposal, _ *run.Document) { p.Events[0].Seq = 0 }},
	{"an event with a negative sequence", func(p *run.Proposal, _ *run.Document) { p.Events[0].Seq = -1 }},
}

// unfit are schedules that do not fit the status of their end.
var unfit = []struct {
	end      end
	schedule checkpoint.Kind
}{
	{toWaiting, checkpoint.Retain},
	{toWaiting, checkpoint.ReleaseNow},
	{toWaiting, checkpoint.ReleaseTerminal},
	{toDone, checkpoint.Retain},
	{toDone, checkpoint.ReleaseNow},
	{toDone, checkpoint.ReleaseExternal},
	{toFailed, checkpoint.Retain},
	{toCancelled, checkpoint.ReleaseNow},
}

// T1: the order of a commit's answers.
var commitOrderCases = []Case{
	{
		ID: "T1.every-end", Says: "wherever a commit leads, it changes neither the graph version nor the start of its run, nor a run of another scope",
		run: func(r *rig) {
			for _, e := range ends {
				d := r.put(string(e))
				l := r.take(d.ID, 0)
				for name, edit := range map[string]func(d *run.Document){
					"another graph version": func(d *run.Document) { d.Graph.Hash = strings.Repeat("0", 64) },
					"another start":         func(d *run.Document) { d.StartedAt = d.StartedAt.Add(-tick) },
				} {
					p := edited(next(d, e, r.start, r.start), func(_ *run.Proposal, d *run.Document) { edit(d) })
					r.untouched("a commit to "+string(e)+" with "+name, func() {
						_, err := r.send(l, p)
						r.refused("a commit to "+string(e)+" with "+name, err, backend.ErrInvalidCommit)
					})
				}
				r.untouched("a commit to "+string(e)+" in another scope", func() {
					_, err := r.store.Commit(r.ctx, backend.Of(acme), backend.Commit{Proposal: next(d, e, r.start, r.start), CheckpointID: r.commitID(), Token: l.Token})
					r.refused("a commit to "+string(e)+" in another scope", err, backend.ErrNotFound)
				})
				r.commit(l, d, e, 0)
				if e == toNow || e == toAt {
					r.take(d.ID, 0) // so that it is not due for the next one
				}
			}
		},
	},
	{
		ID: "T4.every-end", Says: "wherever a commit leads, the fence wants the current token and the current sequence",
		run: func(r *rig) {
			for _, e := range ends {
				first := r.put(string(e))
				zombie := r.take(first.ID, 0)
				batch := r.claim(r.policy(2 * ttl))
				i := slices.IndexFunc(batch.Leases, func(l claim.Lease) bool { return l.Run == first.ID })
				if i < 0 {
					r.Fatalf("%s was not stolen after its TTL", first.ID)
				}
				thief := batch.Leases[i]
				r.untouched("a commit of a zombie to "+string(e), func() {
					_, err := r.send(zombie, next(first, e, r.at(2*ttl), r.at(2*ttl)))
					r.refused("a commit of a zombie to "+string(e), err, checkpoint.ErrStaleFence)
				})
				second := r.commit(thief, first, toRetain, 2*ttl)
				r.untouched("a commit of the holder at an older sequence to "+string(e), func() {
					_, err := r.send(thief, next(first, e, r.at(2*ttl), r.at(2*ttl)))
					r.refused("a commit of the holder at an older sequence to "+string(e), err, checkpoint.ErrStaleFence)
				})
				r.commit(thief, second, toDone, 2*ttl)
			}
		},
	},
	{
		ID: "T1.shape", Says: "what no state of the run could accept is an invalid commit, before any lookup",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			gone := opening("gone", r.ref, r.start, "").Document
			for _, bad := range misshapen {
				for _, on := range []*run.Document{d, gone} {
					r.untouched("a commit with "+bad.name, func() {
						_, err := r.send(l, edited(next(on, toRetain, r.start, r.start), bad.edit))
						r.refused("Commit with "+bad.name, err, backend.ErrInvalidCommit)
					})
				}
			}
			for _, bad := range unfit {
				r.untouched("an unfit schedule", func() {
					p := next(d, bad.end, r.start, r.start)
					p.Schedule = checkpoint.Schedule{Kind: bad.schedule}
					_, err := r.send(l, p)
					r.refused(fmt.Sprintf("Commit to %s with %v", bad.end, bad.schedule), err, backend.ErrInvalidCommit)
				})
			}
			r.commit(l, d, toDone, 0)
		},
	},
	{
		ID: "T1.proposed-events", Says: "proposed events under one sequence collapse when equal and conflict when not, before any lookup",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			for _, on := range []*run.Document{d, opening("gone", r.ref, r.start, "").Document} {
				p := next(on, toRetain, r.start, r.start)
				other := p.Events[0]
				other.Node = "other"
				p.Events = append(p.Events, other)
				r.untouched("a commit with conflicting events", func() {
					_, err := r.send(l, p)
					r.refused("Commit with conflicting events", err, backend.ErrEventConflict)
				})
			}
			before := r.look().Events["a"]
			p := next(d, toRetain, r.start, r.start)
			twice := p
			twice.Events = []run.Event{p.Events[1], p.Events[0], p.Events[1], p.Events[0]}
			_, err := r.send(l, twice)
			r.ok("Commit with repeated events", err)
			r.events("a", append(before, p.Events...))
		},
	},
	{
		ID: "T1.not-found", Says: "a well-formed proposal for an absent or invisible run is not found, whatever its fence and its identity",
		run: func(r *rig) {
			d := r.putFor(acme, "a", r.start)
			l := r.take("a", 0)
			foreign := edited(next(d, toRetain, r.start, r.start), func(_ *run.Proposal, d *run.Document) { d.Graph.Hash = strings.Repeat("0", 64) })
			for _, p := range []run.Proposal{next(d, toRetain, r.start, r.start), foreign, next(next(d, toRetain, r.start, r.start).Document, toDone, r.start, r.start)} {
				r.untouched("a commit in another scope", func() {
					_, err := r.store.Commit(r.ctx, backend.Of(globex), backend.Commit{Proposal: p, CheckpointID: r.commitID(), Token: l.Token})
					r.refused("Commit in another scope", err, backend.ErrNotFound)
				})
			}
			_, err := r.send(l, next(opening("gone", r.ref, r.start, "").Document, toDone, r.start, r.start))
			r.refused("Commit of an absent run", err, backend.ErrNotFound)
		},
	},
	{
		ID: "T1.identity", Says: "another graph id, graph hash or start instant is an invalid commit, also under a stale fence and with a replayed checkpoint id",
		run: func(r *rig) {
			second := r.publish(tenantless, r.ref.ID, 1)
			in := r.draft("a", nil)
			r.insert(tenantless, in)
			l := r.take("a", 0)
			for name, edit := range map[string]func(p *run.Proposal, d *run.Document){
				"another graph id":          func(_ *run.Proposal, d *run.Document) { d.Graph.ID = "another" },
				"an unknown graph hash":     func(_ *run.Proposal, d *run.Document) { d.Graph.Hash = strings.Repeat("0", 64) },
				"another stored graph hash": func(_ *run.Proposal, d *run.Document) { d.Graph = second },
				"another stored graph hash, by a migration": func(p *run.Proposal, d *run.Document) {
					d.Graph, p.Type, p.Events[1].Checkpoint = second, checkpoint.GraphMigrated, checkpoint.GraphMigrated
				},
				"another start instant": func(_ *run.Proposal, d *run.Document) { d.StartedAt = d.StartedAt.Add(tick) },
			} {
				p := edited(next(in.Document, toRetain, r.start, r.start), edit)
				for _, token := range []claim.Token{l.Token, "stale"} {
					for _, id := range []checkpoint.ID{r.commitID(), in.CheckpointID} {
						r.untouched("a commit with "+name, func() {
							_, err := r.store.Commit(r.ctx, backend.System(), backend.Commit{Proposal: p, CheckpointID: id, Token: token})
							r.refused("Commit with "+name, err, backend.ErrInvalidCommit)
						})
					}
				}
			}
		},
	},
	{
		ID: "T1.replayed-before-fence", Says: "the stored checkpoint id answers replayed, whatever became of the claim since",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			c := backend.Commit{Proposal: next(d, toNow, r.start, r.start), CheckpointID: r.commitID(), Token: l.Token}
			r.replays(c, false)
			r.untouched("a repeated commit", func() { r.replays(c, true) })
			r.take("a", time.Second)
			r.untouched("a repeated commit beside a newer claim", func() { r.replays(c, true) })
		},
	},
	{
		ID: "T1.fence", Says: "token and sequence must both match, else the fence is stale and says which did not",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			r.untouched("commits under a stale fence", func() {
				_, err := r.send(claim.Lease{Token: "other"}, next(d, toRetain, r.start, r.start))
				r.fence("Commit under another token", err, checkpoint.FenceError{Stored: 1, Presented: 1})
			})
			d2 := r.commit(l, d, toRetain, 0)
			r.untouched("commits under a stale fence", func() {
				_, err := r.send(l, next(d, toRetain, r.at(time.Second), r.start))
				r.fence("Commit at an earlier sequence", err, checkpoint.FenceError{Stored: 2, Presented: 1, TokenMatched: true})
				_, err = r.send(claim.Lease{Token: "other"}, next(d, toRetain, r.at(time.Second), r.start))
				r.fence("Commit under neither", err, checkpoint.FenceError{Stored: 2, Presented: 1})
				ahead := next(next(d2, toRetain, r.start, r.start).Document, toRetain, r.start, r.start)
				_, err = r.send(l, ahead)
				r.fence("Commit at a later sequence", err, checkpoint.FenceError{Stored: 2, Presented: 3, TokenMatched: true})
			})
			r.commit(l, d2, toDone, 0)
		},
	},
	{
		ID: "T1.no-claim", Says: "a run that nobody holds takes no commit at all",
		run: func(r *rig) {
			r.eachVoid(func(how string, l claim.Lease, d *run.Document) {
				r.untouched("a commit under a claim that was "+how, func() {
					for _, e := range []end{toRetain, toDone} {
						_, err := r.send(l, next(d, e, r.at(time.Hour), r.start))
						r.refused("Commit under a claim that was "+how, err, checkpoint.ErrStaleFence)
						now := r.inspect(l.Run).Document
						if now.Seq != d.Seq && (now.Status == run.Running || now.Status == run.Waiting && e == toDone) {
							_, err = r.send(l, next(now, e, r.at(time.Hour), r.start))
							r.refused("Commit at the new sequence under a claim that was "+how, err, checkpoint.ErrStaleFence)
						}
					}
				})
			})
		},
	},
	{
		ID: "T1.stored-events", Says: "a stored event with the same sequence and other content is an event conflict, after the fence",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			conflicting := edited(next(d, toRetain, r.start, r.start), func(p *run.Proposal, d *run.Document) {
				p.Events = append(p.Events, run.Event{Run: "a", Seq: 1, Type: run.EventNodeCompleted, At: r.start, Step: 1, Node: "work"})
			})
			r.untouched("a commit that contradicts a stored event", func() {
				_, err := r.send(claim.Lease{Token: "stale"}, conflicting)
				r.refused("Commit under a stale fence that contradicts a stored event", err, checkpoint.ErrStaleFence)
				_, err = r.send(l, conflicting)
				r.refused("Commit that contradicts a stored event", err, backend.ErrEventConflict)
			})
			r.commit(l, d, toDone, 0)
		},
	},
	{
		ID: "T1.any-status", Says: "a held token may take its run to every storable status",
		run: func(r *rig) {
			for _, e := range ends {
				d := r.bring(string(e), e)
				r.document(d)
				if e == toRetain || e == toNow || e == toAt {
					r.mutate(string(e), func(d *run.Document) run.Proposal { return next(d, toCancelled, r.start, r.start) })
				}
			}
		},
	},
}

// T2: the effect of a commit.
var commitCases = []Case{
	{
		ID: "T2.replaces", Says: "a commit replaces the document, records type and checkpoint id, and appends its events",
		run: func(r *rig) {
			in := r.draft("a", nil)
			r.insert(acme, in)
			l := r.take("a", 0)
			p := next(in.Document, toRetain, r.at(time.Second), r.start)
			c := backend.Commit{Proposal: p, CheckpointID: r.commitID(), Token: l.Token}
			_, err := r.store.Commit(r.ctx, backend.Of(acme), c)
			r.ok("Commit in the owner's scope", err)
			r.document(p.Document)
			r.events("a", append(slices.Clone(in.Events), p.Events...))
			r.same("the inspection", r.inspect("a"), backend.Info{
				Document: p.Document, Owner: acme, ClaimedAt: r.at(time.Second), Type: checkpoint.StepCommitted, CheckpointID: c.CheckpointID,
			})
		},
	},
	{
		ID: "T2.schedules", Says: "retain keeps the claim and moves claimed-at; every release clears it; now and at set the wake, external and terminal none",
		run: func(r *rig) {
			want := map[end]columns{
				toRetain:    {Status: run.Running, ClaimedAt: r.at(time.Minute)},
				toNow:       {Status: run.Running, Wake: r.at(time.Minute)},
				toAt:        {Status: run.Running, Wake: r.at(time.Hour)},
				toWaiting:   {Status: run.Waiting},
				toDone:      {Status: run.Done},
				toFailed:    {Status: run.Failed},
				toCancelled: {Status: run.Cancelled},
			}
			for _, e := range ends {
				d := r.put(string(e))
				l := r.take(string(e), 0)
				_, err := r.send(l, next(d, e, r.at(time.Minute), r.at(time.Hour)))
				r.ok("Commit to "+string(e), err)
				r.expect(string(e), want[e])
			}
		},
	},
	{
		ID: "T2.past-wake", Says: "release-at may name an instant in the past",
		run: func(r *rig) {
			d := r.put("a")
			_, err := r.send(r.take("a", 0), next(d, toAt, r.at(time.Minute), r.at(-time.Hour)))
			r.ok("Commit", err)
			r.expect("a", columns{Status: run.Running, Wake: r.at(-time.Hour)})
			r.take("a", 0)
		},
	},
	{
		ID: "T2.clears", Says: "every commit clears attempts and abandons",
		run: func(r *rig) {
			for _, e := range ends {
				id := string(e)
				d := r.put(id)
				r.abandons(r.take(id, 0), claim.AbandonPolicy{Now: r.start, ExpectedSeq: 1, MaxAbandons: 3}, claim.Rescheduled)
				r.take(id, 0)
				l := r.take(id, ttl+tick)
				r.expect(id, columns{Status: run.Running, ClaimedAt: r.at(ttl + tick), Attempts: 2, Abandons: 1})
				r.commit(l, d, e, ttl+tick)
				if i := r.inspect(id); i.Attempts != 0 || i.Abandons != 0 {
					r.Errorf("after a commit to %s there are %d attempts and %d abandons", e, i.Attempts, i.Abandons)
				}
				if e == toRetain || e == toNow || e == toAt {
					r.mutate(id, func(d *run.Document) run.Proposal { return next(d, toCancelled, r.start, r.start) })
				}
			}
		},
	},
	{
		ID: "T2.retain-again", Says: "a retained claim commits again and again, until a release ends it",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			for i := range 10 {
				d = r.commit(l, d, toRetain, time.Duration(i)*time.Second)
			}
			d = r.commit(l, d, toNow, time.Minute)
			_, err := r.send(l, next(d, toDone, r.start, r.start))
			r.fence("Commit after the release", err, checkpoint.FenceError{Stored: d.Seq, Presented: d.Seq})
		},
	},
	{
		ID: "T2.no-events", Says: "a commit without events is legal, and leaves the events as they were",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			before := r.look().Events["a"]
			_, err := r.send(l, edited(next(d, toRetain, r.start, r.start), func(p *run.Proposal, d *run.Document) {
				p.Events, d.EventSeq = nil, 2
			}))
			r.ok("Commit without events", err)
			r.events("a", before)
		},
	},
	{
		ID: "T2.given-document-is-left-alone", Says: "a store neither changes a document it was given nor lets a later change of the caller's copy reach it",
		run: func(r *rig) {
			d := r.put("a")
			p := next(d, toRetain, r.start, r.start)
			raw, err := run.Encode(p.Document)
			r.ok("run.Encode", err)
			_, err = r.send(r.take("a", 0), p)
			r.ok("Commit", err)
			again, err := run.Encode(p.Document)
			r.ok("run.Encode", err)
			r.same("the caller's document", string(again), string(raw))
		},
	},
	{
		ID: "T2.refused-writes-nothing", Says: "a refused commit writes no part of it: neither document nor schedule nor events",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			r.put("b")
			r.untouched("refused commits", func() {
				p := next(d, toDone, r.at(time.Hour), r.start)
				p.Events = append(p.Events, run.Event{Run: "a", Seq: 2, Type: run.EventNodeCompleted, At: r.start, Step: 1, Node: "work"})
				_, err := r.send(l, p)
				r.refused("Commit that contradicts a stored event", err, backend.ErrEventConflict)
				_, err = r.send(claim.Lease{Token: "stale"}, next(d, toDone, r.at(time.Hour), r.start))
				r.refused("Commit under a stale token", err, checkpoint.ErrStaleFence)
			})
		},
	},
}

// replays sends a commit and requires that it says whether it had been applied before.
func (r *rig) replays(c backend.Commit, want bool) {
	r.Helper()
	got, err := r.store.Commit(r.ctx, backend.System(), c)
	r.ok("Commit of "+c.Document.ID, err)
	if got.Replayed != want {
		r.Errorf("Commit of %s answered replayed %v; it must answer %v", c.Document.ID, got.Replayed, want)
	}
}
