package proptest

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// T3: mutations.
var mutateCases = []Case{
	{
		ID: "T3.commits", Says: "a mutation that proposes replaces the document, revokes the claim, applies the schedule and hands the value back",
		run: func(r *rig) {
			in := r.draft("a", nil)
			r.insert(acme, in)
			r.take("a", 0)
			id := r.commitID()
			var seen *run.Document
			var p run.Proposal
			m, err := r.store.MutateRun(r.ctx, backend.Of(acme), "a", id, func(current *run.Document) (backend.Mutation, error) {
				seen = current
				p = next(current, toAt, r.at(time.Second), r.at(time.Hour))
				return backend.Mutation{Proposal: &p, Value: "mine"}, nil
			})
			r.ok("MutateRun", err)
			r.same("the document the function saw", seen, in.Document)
			r.same("the answer", m, backend.Mutated{Committed: true, Document: p.Document, Value: "mine"})
			r.same("the inspection", r.inspect("a"), backend.Info{
				Document: p.Document, Owner: acme, Wake: r.at(time.Hour), Type: checkpoint.RetryScheduled, CheckpointID: id,
			})
			r.events("a", append(slices.Clone(in.Events), p.Events...))
		},
	},
	{
		ID: "T3.no-change", Says: "a mutation that proposes nothing touches nothing and hands the value back",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			r.untouched("a mutation without a proposal", func() {
				m, err := r.store.MutateRun(r.ctx, backend.System(), "a", r.commitID(), func(*run.Document) (backend.Mutation, error) {
					return backend.Mutation{Value: 42}, nil
				})
				r.ok("MutateRun", err)
				r.same("the answer", m, backend.Mutated{Document: d, Value: 42})
			})
			r.commit(l, d, toDone, 0)
		},
	},
	{
		ID: "T3.error", Says: "an error of the function is returned as it is, and touches nothing",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			mine := errors.New("no, thank you")
			r.untouched("a mutation that fails", func() {
				_, err := r.store.MutateRun(r.ctx, backend.System(), "a", r.commitID(), func(current *run.Document) (backend.Mutation, error) {
					p := next(current, toDone, r.start, r.start)
					return backend.Mutation{Proposal: &p}, mine
				})
				if err != mine { //nolint:errorlint // returned as it is
					r.Errorf("MutateRun answered %v; it must answer the function's own error", err)
				}
			})
			r.commit(l, d, toDone, 0)
		},
	},
	{
		ID: "T3.not-called", Says: "the function is not called for an absent run or one of another scope",
		run: func(r *rig) {
			r.putFor(acme, "a", r.start)
			for _, scope := range []backend.Scope{backend.Of(globex), backend.Of(tenantless)} {
				_, err := r.store.MutateRun(r.ctx, scope, "a", r.commitID(), r.never("MutateRun of another scope's run"))
				r.refused("MutateRun of another scope's run", err, backend.ErrNotFound)
			}
			_, err := r.store.MutateRun(r.ctx, backend.System(), "gone", r.commitID(), r.never("MutateRun of an absent run"))
			r.refused("MutateRun of an absent run", err, backend.ErrNotFound)
		},
	},
	{
		ID: "T3.refuses", Says: "what no commit may be, a retaining schedule, another identity and a wrong sequence are invalid mutations",
		run: func(r *rig) {
			r.publish(tenantless, r.ref.ID, 1)
			r.put("a")
			r.take("a", 0)
			bad := []struct {
				name string
				edit func(p *run.Proposal, d *run.Document)
			}{
				{"a schedule of retain", func(p *run.Proposal, _ *run.Document) { p.Schedule.Kind = checkpoint.Retain }},
				{"another run's document", func(p *run.Proposal, d *run.Document) {
					d.ID = "b"
					for i := range p.Events {
						p.Events[i].Run = "b"
					}
				}},
				{"another graph id", func(_ *run.Proposal, d *run.Document) { d.Graph.ID = "another" }},
				{"another graph hash", func(_ *run.Proposal, d *run.Document) { d.Graph, _ = published(r.ref.ID, 1) }},
				{"another start instant", func(_ *run.Proposal, d *run.Document) { d.StartedAt = d.StartedAt.Add(tick) }},
				{"an old sequence", func(p *run.Proposal, d *run.Document) { p.Expected, d.Seq = p.Expected-1, d.Seq-1 }},
				{"a later sequence", func(p *run.Proposal, d *run.Document) { p.Expected, d.Seq = p.Expected+1, d.Seq+1 }},
			}
			for _, b := range append(bad, misshapen...) {
				r.untouched("a mutation with "+b.name, func() {
					_, err := r.store.MutateRun(r.ctx, backend.System(), "a", r.commitID(), func(current *run.Document) (backend.Mutation, error) {
						p := edited(next(current, toNow, r.start, r.start), b.edit)
						return backend.Mutation{Proposal: &p}, nil
					})
					r.refused("MutateRun with "+b.name, err, backend.ErrInvalidMutation)
				})
			}
		},
	},
	{
		ID: "T3.status-table", Says: "a mutation moves the status as the table allows, and in no other way",
		run: func(r *rig) {
			legal := map[end][]end{
				toNow:     {toNow, toAt, toWaiting, toDone, toFailed, toCancelled},
				toWaiting: {toNow, toAt, toCancelled}, // waiting to running and to cancelled
			}
			for _, from := range []end{toNow, toWaiting, toDone, toFailed, toCancelled} {
				for _, to := range []end{toNow, toAt, toWaiting, toDone, toFailed, toCancelled} {
					id := string(from) + " to " + string(to)
					d := r.bring(id, from)
					propose := func(current *run.Document) (backend.Mutation, error) {
						p := next(current, to, r.start, r.at(time.Hour))
						if from == toWaiting && (to == toNow || to == toAt) {
							schedule := p.Schedule
							p = resume(current, r.start)
							p.Schedule = schedule
						}
						return backend.Mutation{Proposal: &p}, nil
					}
					_, err := r.store.MutateRun(r.ctx, backend.System(), id, r.commitID(), propose)
					if slices.Contains(legal[from], to) {
						r.ok("MutateRun from "+id, err)
					} else {
						r.refused("MutateRun from "+id, err, backend.ErrInvalidMutation)
						r.document(d)
					}
					if now := r.inspect(id).Document; now.Status == run.Running {
						r.mutate(id, func(d *run.Document) run.Proposal { return next(d, toCancelled, r.start, r.start) })
					}
				}
			}
		},
	},
	{
		ID: "T3.clears", Says: "a mutation clears claim, attempts, abandons and poison",
		run: func(r *rig) {
			r.put("a")
			r.abandons(r.take("a", 0), claim.AbandonPolicy{Now: r.start, ExpectedSeq: 1, MaxAbandons: 3}, claim.Rescheduled)
			r.take("a", 0)
			r.mutate("a", func(d *run.Document) run.Proposal { return next(d, toAt, r.start, r.at(time.Hour)) })
			r.expect("a", columns{Status: run.Running, Wake: r.at(time.Hour)})
			r.poison("b", time.Second)
			r.mutate("b", func(d *run.Document) run.Proposal { return next(d, toWaiting, r.start, r.start) })
			r.expect("b", columns{Status: run.Waiting})
			r.poison("c", 2*time.Second)
			r.mutate("c", func(d *run.Document) run.Proposal { return next(d, toCancelled, r.start, r.start) })
			r.expect("c", columns{Status: run.Cancelled})
		},
	},
	{
		ID: "T3.no-change-of-poison", Says: "a mutation without a proposal leaves a poisoned run poisoned",
		run: func(r *rig) {
			r.poison("a", time.Second)
			r.untouched("a mutation without a proposal", func() {
				_, err := r.store.MutateRun(r.ctx, backend.System(), "a", r.commitID(), func(*run.Document) (backend.Mutation, error) {
					return backend.Mutation{}, nil
				})
				r.ok("MutateRun", err)
			})
		},
	},
	{
		ID: "T3.migrates", Says: "a mutation of type graph_migrated may name another stored version of the same owner and graph, and no other one; a waiting run may stay waiting",
		run: func(r *rig) {
			second := r.publish(tenantless, r.ref.ID, 1)
			foreign := r.publish(acme, r.ref.ID, 2)
			another := r.publish(tenantless, "another", 0)
			r.put("a")
			migrate := func(edit func(p *run.Proposal, d *run.Document)) error {
				_, err := r.store.MutateRun(r.ctx, backend.System(), "a", r.commitID(), func(current *run.Document) (backend.Mutation, error) {
					p := edited(next(current, toNow, r.start, r.start), func(p *run.Proposal, d *run.Document) {
						p.Type, p.Events[1].Checkpoint = checkpoint.GraphMigrated, checkpoint.GraphMigrated
						edit(p, d)
					})
					return backend.Mutation{Proposal: &p}, nil
				})
				return err
			}
			for name, edit := range map[string]func(p *run.Proposal, d *run.Document){
				"a version that is not stored": func(_ *run.Proposal, d *run.Document) { d.Graph.Hash = strings.Repeat("0", 64) },
				"another owner's version":      func(_ *run.Proposal, d *run.Document) { d.Graph = foreign },
				"another graph":                func(_ *run.Proposal, d *run.Document) { d.Graph = another },
				"a version of its own, by another type": func(p *run.Proposal, d *run.Document) {
					d.Graph, p.Type, p.Events[1].Checkpoint = second, checkpoint.StepCommitted, checkpoint.StepCommitted
				},
			} {
				r.untouched("a migration to "+name, func() {
					r.refused("a migration to "+name, migrate(edit), backend.ErrInvalidMutation)
				})
			}
			r.ok("a migration to another version", migrate(func(_ *run.Proposal, d *run.Document) { d.Graph = second }))
			if l := r.take("a", 0); l.GraphHash != second.Hash {
				r.Errorf("the lease after a migration names the version %s", l.GraphHash)
			}
			runs, err := allRuns(r.ctx, r.store, backend.System(), backend.Query{GraphHash: second.Hash, Limit: 10})
			r.ok("ListRuns", err)
			if len(runs) != 1 || runs[0].Graph != second {
				r.Errorf("after a migration %d runs are listed under the new version", len(runs))
			}
			r.bring("w", toWaiting)
			still := func(kind checkpoint.Type, version graph.Ref) error {
				_, err := r.store.MutateRun(r.ctx, backend.System(), "w", r.commitID(), func(current *run.Document) (backend.Mutation, error) {
					p := edited(next(current, toNow, r.start, r.start), func(p *run.Proposal, d *run.Document) {
						p.Type, p.Events[1].Checkpoint, p.Schedule.Kind = kind, kind, checkpoint.ReleaseExternal
						d.Status, d.Graph = run.Waiting, version
					})
					return backend.Mutation{Proposal: &p}, nil
				})
				return err
			}
			r.refused("a mutation of another type that leaves a run waiting", still(checkpoint.StepCommitted, r.ref), backend.ErrInvalidMutation)
			r.ok("a migration that leaves a run waiting", still(checkpoint.GraphMigrated, second))
			if info := r.inspect("w"); info.Document.Status != run.Waiting || info.Document.Graph != second {
				r.Errorf("a migrated run that waited is %s, at the version %s", info.Document.Status, info.Document.Graph.Hash)
			}
		},
	},
	{
		ID: "T3.events", Says: "conflicting events of a mutation are an event conflict, proposed or stored; equal ones collapse",
		run: func(r *rig) {
			r.put("a")
			mutate := func(edit func(p *run.Proposal, d *run.Document)) error {
				_, err := r.store.MutateRun(r.ctx, backend.System(), "a", r.commitID(), func(current *run.Document) (backend.Mutation, error) {
					p := edited(next(current, toNow, r.start, r.start), edit)
					return backend.Mutation{Proposal: &p}, nil
				})
				return err
			}
			for name, seq := range map[string]int64{"proposed": 3, "stored": 1} {
				r.untouched("a mutation that contradicts an event", func() {
					r.refused("a mutation that contradicts an event that is "+name, mutate(func(p *run.Proposal, _ *run.Document) {
						p.Events = append(p.Events, run.Event{Run: "a", Seq: seq, Type: run.EventNodeCompleted, At: r.start, Step: 7, Node: "other"})
					}), backend.ErrEventConflict)
				})
			}
			r.ok("a mutation with repeated events", mutate(func(p *run.Proposal, _ *run.Document) {
				p.Events = []run.Event{p.Events[1], p.Events[0], p.Events[0]}
			}))
			if n := len(r.look().Events["a"]); n != 4 {
				r.Errorf("there are %d events; there must be 4", n)
			}
		},
	},
	{
		ID: "T3.after-refresh", Says: "a claim that was refreshed in between does not disturb a mutation, and is revoked by it",
		run: func(r *rig) {
			r.put("a")
			l := r.take("a", 0)
			r.ok("RefreshClaim", r.store.RefreshClaim(r.ctx, "a", l.Token, r.at(time.Hour)))
			r.mutate("a", func(d *run.Document) run.Proposal { return next(d, toCancelled, r.at(time.Second), r.start) })
			r.expect("a", columns{Status: run.Cancelled})
			r.refused("RefreshClaim after the mutation", r.store.RefreshClaim(r.ctx, "a", l.Token, r.at(time.Hour)), backend.ErrClaimLost)
		},
	},
	{
		ID: "T3.serialized", Says: "mutations at once are serialized: each builds on the one before, and none is lost",
		run: func(r *rig) {
			r.put("a")
			const callers, calls = 8, 20
			ids := make([]checkpoint.ID, callers*calls)
			for i := range ids {
				ids[i] = r.commitID()
			}
			r.together(callers, func(i int) error {
				for _, id := range ids[i*calls : (i+1)*calls] {
					m, err := r.store.MutateRun(r.ctx, backend.System(), "a", id, func(current *run.Document) (backend.Mutation, error) {
						p := next(current, toNow, r.start, r.start)
						runtime.Gosched() // gives the others their chance, in a store that lets them in
						return backend.Mutation{Proposal: &p, Value: current.Seq}, nil
					})
					if err != nil {
						return err
					}
					if !m.Committed || m.Document == nil || m.Value != m.Document.Seq-1 {
						return fmt.Errorf("a mutation that was decided at sequence %v did not commit the next one", m.Value)
					}
				}
				return nil
			})
			if seq := r.inspect("a").Document.Seq; seq != callers*calls+1 {
				r.Errorf("after %d mutations the sequence is %d", callers*calls, seq)
			}
			if events := r.look().Events["a"]; len(events) != 2*(callers*calls+1) {
				r.Errorf("after %d mutations there are %d events", callers*calls, len(events))
			}
		},
	},
	{
		ID: "T3.busy-run", Says: "a run that is committed to without pause does not starve a mutation",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			mutation, stop := r.commitID(), make(chan struct{})
			ids := make([]checkpoint.ID, 2000)
			for i := range ids {
				ids[i] = r.commitID()
			}
			r.together(2, func(i int) error {
				if i == 0 {
					defer close(stop)
					_, err := r.store.MutateRun(r.ctx, backend.System(), "a", mutation, func(current *run.Document) (backend.Mutation, error) {
						p := next(current, toCancelled, r.start, r.start)
						return backend.Mutation{Proposal: &p}, nil
					})
					return err
				}
				for _, id := range ids {
					select {
					case <-stop:
						return nil
					default:
					}
					p := next(d, toRetain, r.start, r.start)
					_, err := r.store.Commit(r.ctx, backend.System(), backend.Commit{Proposal: p, CheckpointID: id, Token: l.Token})
					if errors.Is(err, checkpoint.ErrStaleFence) {
						return nil // the mutation went through
					}
					if err != nil {
						return err
					}
					d = p.Document
				}
				return nil
			})
			r.expect("a", columns{Status: run.Cancelled})
		},
	},
	{
		ID: "T3.last-answer-counts", Says: "a function that is called again sees the newer document, and its last answer counts",
		run: func(r *rig) {
			r.put("a")
			// Whatever the function was called with last is what the commit builds on.
			var last int64
			m := r.mutate("a", func(d *run.Document) run.Proposal {
				last = d.Seq
				return next(d, toNow, r.start, r.start)
			})
			if m.Document == nil || m.Document.Seq != last+1 {
				r.Errorf("the mutation's document does not build on the last one its function saw")
			}
			r.document(m.Document)
		},
	},
}
