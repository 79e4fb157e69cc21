package proptest

import (
	"fmt"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// X7: retention.
var retentionCases = []Case{
	{
		ID: "X7.terminal-only", Says: "only finished runs are deleted, and what is deleted is not found anywhere", needs: []need{retention},
		run: func(r *rig) {
			for _, e := range []end{toWaiting, toDone, toFailed, toCancelled} {
				r.bring(string(e), e)
			}
			r.poison("poisoned", time.Second)
			r.put("claimed")
			r.take("claimed", time.Second)
			r.putAt("scheduled", r.at(time.Hour))
			before := r.look()
			pruned := r.prunes(backend.PrunePolicy{Before: r.at(1000 * time.Hour), Limit: 100})
			r.same("what was deleted", pruned, backend.Pruned{Runs: 3, Events: 12})
			after := r.look()
			for _, e := range terminal {
				r.absent(string(e))
				for _, c := range inScope(backend.Of(tenantless)) {
					r.refused(c.name+" of a deleted run", c.with(r, string(e)), backend.ErrNotFound)
				}
				delete(before.Infos, string(e))
				delete(before.Events, string(e))
			}
			r.same("the runs that stay", after.Infos, before.Infos)
			r.same("the events that stay", after.Events, before.Events)
		},
	},
	{
		ID: "X7.before", Says: "a run is deleted when it finished strictly before the instant", needs: []need{retention},
		run: func(r *rig) {
			d := r.put("a")
			r.commit(r.take("a", 0), d, toDone, time.Minute)
			for _, at := range []time.Duration{time.Minute - tick, time.Minute} {
				r.untouched("a prune that is too early", func() {
					r.same("what was deleted", r.prunes(backend.PrunePolicy{Before: r.at(at), Limit: 1}), backend.Pruned{})
				})
			}
			r.same("what was deleted", r.prunes(backend.PrunePolicy{Before: r.at(time.Minute + tick), Limit: 1}), backend.Pruned{Runs: 1, Events: 4})
			r.absent("a")
		},
	},
	{
		ID: "X7.batches", Says: "one call deletes as many runs as its limit, and says whether there is more", needs: []need{retention},
		run: func(r *rig) {
			for i := range 5 {
				r.bring(fmt.Sprintf("run-%d", i), toDone)
			}
			p := backend.PrunePolicy{Before: r.at(time.Hour), Limit: 2}
			for left := 5; left > 0; left -= 2 {
				n := min(left, 2)
				got := r.prunes(p)
				if got.Runs != n || got.Events != 4*n || left > 2 && !got.More {
					r.Errorf("with %d finished runs a prune of 2 deleted %+v", left, got)
				}
			}
			r.same("what was deleted at last", r.prunes(p), backend.Pruned{})
		},
	},
	{
		ID: "X7.statuses", Says: "statuses narrow what is deleted", needs: []need{retention},
		run: func(r *rig) {
			for _, e := range terminal {
				r.bring(string(e), e)
			}
			p := backend.PrunePolicy{Before: r.at(time.Hour), Limit: 10, Statuses: []run.Status{run.Failed, run.Cancelled}}
			r.same("what was deleted", r.prunes(p), backend.Pruned{Runs: 2, Events: 8})
			r.expect("done", columns{Status: run.Done})
			r.absent("failed")
			r.absent("cancelled")
		},
	},
	{
		ID: "X7.dry-run", Says: "a dry run counts what would go and deletes nothing", needs: []need{retention},
		run: func(r *rig) {
			r.bring("a", toDone)
			r.bring("b", toWaiting)
			p := backend.PrunePolicy{Before: r.at(time.Hour), Limit: 10, DryRun: true}
			r.untouched("a dry run", func() {
				r.same("what would go", r.prunes(p), backend.Pruned{Runs: 1, Events: 4})
			})
			p.DryRun = false
			r.same("what went", r.prunes(p), backend.Pruned{Runs: 1, Events: 4})
		},
	},
	{
		ID: "X7.graphs", Says: "a graph version goes when no run references it and it is older than the instant; the newest of each graph stays", needs: []need{retention, setClock},
		run: func(r *rig) {
			var refs []graph.Ref
			for i := range 4 {
				r.hooks.SetClock(r.at(time.Duration(i) * time.Minute))
				refs = append(refs, r.publish(tenantless, "proof", i))
			}
			r.hooks.SetClock(r.at(time.Hour))
			of := func(id string, ref graph.Ref) *run.Document {
				in := r.draft(id, func(in *backend.Initialization) { in.Document.Graph = ref })
				r.insert(tenantless, in)
				return in.Document
			}
			finished := of("finished", refs[0])
			r.commit(r.take("finished", 0), finished, toDone, 0)
			of("running", refs[1])
			// refs[2] is referenced by nothing, refs[3] is the newest.
			p := backend.PrunePolicy{Before: r.at(2 * time.Minute), Limit: 10, Graphs: true}
			r.same("what was deleted", r.prunes(p), backend.Pruned{Runs: 1, Events: 4, Graphs: 1})
			_, err := r.store.FetchGraph(r.ctx, tenantless, refs[0])
			r.refused("FetchGraph of a deleted version", err, backend.ErrNotFound)
			p.Before = r.at(time.Hour)
			r.same("what was deleted later", r.prunes(p), backend.Pruned{Graphs: 1})
			for _, i := range []int{1, 3} {
				_, err := r.store.FetchGraph(r.ctx, tenantless, refs[i])
				r.ok("FetchGraph of a version that stays", err)
			}
		},
	},
	{
		ID: "X7.graphs-stay", Says: "without being asked retention deletes no graph", needs: []need{retention},
		run: func(r *rig) {
			r.publish(tenantless, "proof", 0)
			r.publish(tenantless, "proof", 1)
			r.untouched("a prune of runs alone", func() {
				r.same("what was deleted", r.prunes(backend.PrunePolicy{Before: r.at(100 * 365 * 24 * time.Hour), Limit: 10}), backend.Pruned{})
			})
		},
	},
	{
		ID: "X7.arguments", Says: "a limit out of range, no instant and a status that is not terminal are invalid arguments", needs: []need{retention},
		run: func(r *rig) {
			r.bring("a", toDone)
			good := backend.PrunePolicy{Before: r.at(time.Hour), Limit: 10}
			for _, bad := range []struct {
				name string
				edit func(p *backend.PrunePolicy)
			}{
				{"the limit 0", func(p *backend.PrunePolicy) { p.Limit = 0 }},
				{"the limit 1001", func(p *backend.PrunePolicy) { p.Limit = backend.MaxLimit + 1 }},
				{"no instant", func(p *backend.PrunePolicy) { p.Before = time.Time{} }},
				{"the status running", func(p *backend.PrunePolicy) { p.Statuses = []run.Status{run.Done, run.Running} }},
			} {
				p := good
				bad.edit(&p)
				r.invalid("Prune with "+bad.name, func() error {
					_, err := r.store.Features().Retention.Prune(r.ctx, p)
					return err
				})
			}
		},
	},
	{
		ID: "X7.zombie", Says: "a late call for a deleted run finds nothing, and brings nothing back", needs: []need{retention},
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			c := backend.Commit{Proposal: next(d, toDone, r.start, r.start), CheckpointID: r.commitID(), Token: l.Token}
			r.replays(c, false)
			r.prunes(backend.PrunePolicy{Before: r.at(time.Hour), Limit: 10})
			_, err := r.store.Commit(r.ctx, backend.System(), c)
			r.refused("a commit of a deleted run sent again", err, backend.ErrNotFound)
			r.refused("RefreshClaim", r.store.RefreshClaim(r.ctx, "a", l.Token, r.start), backend.ErrClaimLost)
			r.lists(backend.System(), backend.Query{})
			r.absent("a")
		},
	},
	{
		ID: "X7.new-run", Says: "a deleted run's key is free, whether its window has passed or not", needs: []need{retention},
		run: func(r *rig) {
			for i, window := range []time.Duration{0, 10 * time.Hour} {
				id := fmt.Sprintf("run-%d", i)
				in := r.draft(id, func(in *backend.Initialization) { in.Key, in.Window = "k", window })
				r.same("the answer under the key", r.insert(tenantless, in), backend.Inserted{Run: id})
				r.commit(r.take(id, 0), in.Document, toDone, 0)
				r.prunes(backend.PrunePolicy{Before: r.at(time.Hour), Limit: 10})
			}
			r.same("the answer under the key", r.startKeyed("last", "k", 0, time.Hour), backend.Inserted{Run: "last"})
		},
	},
}

// prunes deletes and ends the case if that fails.
func (r *rig) prunes(p backend.PrunePolicy) backend.Pruned {
	r.Helper()
	got, err := r.store.Features().Retention.Prune(r.ctx, p)
	r.ok("Prune", err)
	return got
}
