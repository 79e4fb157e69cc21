package proptest

import (
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// R2: start keys.
var keyCases = []Case{
	{
		ID: "R2.existing", Says: "an insert under a held key stores neither run nor events and answers the first run",
		run: func(r *rig) {
			r.same("the first answer", r.startKeyed("a", "k", 0, 0), backend.Inserted{Run: "a"})
			r.untouched("an insert under a held key", func() {
				r.same("the second answer", r.startKeyed("b", "k", 0, 0), backend.Inserted{Run: "a", Existing: true})
			})
			r.absent("b")
		},
	},
	{
		ID: "R2.none", Says: "no key holds nothing",
		run: func(r *rig) {
			r.startKeyed("a", "", time.Hour, 0)
			r.same("the second answer", r.startKeyed("b", "", time.Hour, 0), backend.Inserted{Run: "b"})
		},
	},
	{
		ID: "R2.running", Says: "a key is held while its run is not terminal, also after the window and also while it waits or is poisoned",
		run: func(r *rig) {
			r.startKeyed("running", "running", time.Second, 0)
			r.same("the answer beside a running run", r.startKeyed("b", "running", time.Second, time.Hour), backend.Inserted{Run: "running", Existing: true})
			d := r.commit(r.take("running", 0), r.inspect("running").Document, toWaiting, 0)
			r.same("the answer beside a waiting run", r.startKeyed("b", "running", time.Second, time.Hour), backend.Inserted{Run: "running", Existing: true})
			r.mutate("running", func(*run.Document) run.Proposal { return resume(d, r.start) })
			p := r.policy(0)
			p.MaxAttempts, p.TTL = 1, 0
			r.claims(p, "running")
			p.Now = r.at(tick)
			r.claims(p, "poison:running")
			r.same("the answer beside a poisoned run", r.startKeyed("b", "running", time.Second, time.Hour), backend.Inserted{Run: "running", Existing: true})
		},
	},
	{
		ID: "R2.terminal", Says: "without a window the key is free as soon as its run is terminal, whatever ended it",
		run: func(r *rig) {
			for _, e := range terminal {
				id := string(e)
				r.startKeyed(id, id, 0, 0)
				r.commit(r.take(id, 0), r.inspect(id).Document, e, 0)
				r.same("the answer after "+id, r.startKeyed("after "+id, id, 0, 0), backend.Inserted{Run: "after " + id})
				r.take("after "+id, 0)
			}
		},
	},
	{
		ID: "R2.window", Says: "with a window the key of a finished run is held until the window, counted from the insert, has passed",
		run: func(r *rig) {
			r.startKeyed("a", "k", time.Hour, 0)
			r.commit(r.take("a", 0), r.inspect("a").Document, toDone, time.Minute)
			for _, d := range []time.Duration{time.Minute, time.Hour - tick} {
				r.same("the answer within the window", r.startKeyed("b", "k", time.Hour, d), backend.Inserted{Run: "a", Existing: true})
			}
			r.same("the answer at the window's end", r.startKeyed("c", "k", time.Hour, time.Hour), backend.Inserted{Run: "c"})
			r.same("the answer under the new holder", r.startKeyed("d", "k", time.Hour, time.Hour), backend.Inserted{Run: "c", Existing: true})
		},
	},
	{
		ID: "R2.first-window", Says: "the window that counts is the one of the insert that took the key",
		run: func(r *rig) {
			r.startKeyed("a", "k", 0, 0)
			r.commit(r.take("a", 0), r.inspect("a").Document, toDone, 0)
			r.same("the answer with a window of its own", r.startKeyed("b", "k", time.Hour, time.Minute), backend.Inserted{Run: "b"})
			r.commit(r.take("b", time.Minute), r.inspect("b").Document, toFailed, time.Minute)
			r.same("the answer without a window", r.startKeyed("c", "k", 0, time.Hour), backend.Inserted{Run: "b", Existing: true})
		},
	},
	{
		ID: "R2.per-owner-and-graph", Says: "a key belongs to one owner and one graph id; another version of the graph is the same graph",
		run: func(r *rig) {
			r.startKeyed("a", "k", 0, 0)
			keyed := func(in *backend.Initialization) { in.Key = "k" }
			r.same("the answer for another owner", r.insert(acme, r.draft("b", keyed)), backend.Inserted{Run: "b"})
			r.same("the answer for a third owner", r.insert(globex, r.draft("c", keyed)), backend.Inserted{Run: "c"})
			of := func(ref graph.Ref) func(in *backend.Initialization) {
				return func(in *backend.Initialization) { in.Key, in.Document.Graph = "k", ref }
			}
			r.same("the answer for another graph", r.insert(tenantless, r.draft("d", of(r.publish(tenantless, "another", 0)))), backend.Inserted{Run: "d"})
			r.same("the answer for another version", r.insert(tenantless, r.draft("e", of(r.publish(tenantless, r.ref.ID, 1)))), backend.Inserted{Run: "a", Existing: true})
		},
	},
	{
		ID: "R2.bytewise", Says: "keys are compared bytewise",
		run: func(r *rig) {
			for i, key := range []string{"k", "K", "k ", "\u00e9", "e\u0301"} {
				id := string(rune('a' + i))
				r.same("the answer under "+key, r.startKeyed(id, key, 0, 0), backend.Inserted{Run: id})
			}
		},
	},
	{
		ID: "R2.refused-insert", Says: "a key whose insert was refused was never taken",
		run: func(r *rig) {
			r.put("taken")
			in := r.draft("taken", func(in *backend.Initialization) { in.Key = "k" })
			_, err := r.store.InsertRun(r.ctx, tenantless, in)
			r.refused("InsertRun under a taken id", err, backend.ErrConflict)
			r.same("the answer under the key", r.startKeyed("b", "k", 0, 0), backend.Inserted{Run: "b"})
		},
	},
	{
		ID: "R2.concurrent", Says: "of many inserts at once under one key exactly one stores its run, and all answer it",
		run: func(r *rig) {
			r.publish(tenantless, r.ref.ID, 0)
			const n = 8
			ins := make([]backend.Initialization, n)
			for i := range ins {
				ins[i] = r.draft(string(rune('a'+i)), func(in *backend.Initialization) { in.Key = "k" })
			}
			answers := make([]backend.Inserted, n)
			r.together(n, func(i int) error {
				var err error
				answers[i], err = r.store.InsertRun(r.ctx, tenantless, ins[i])
				return err
			})
			stored := r.look().Runs
			if len(stored) != 1 {
				r.Fatalf("%d runs were stored under one key", len(stored))
			}
			for i, a := range answers {
				if a.Run != stored[0].Run || a.Existing == (a.Run == ins[i].Document.ID) {
					r.Errorf("the insert of %s answered run %s, existing %v; run %s is stored", ins[i].Document.ID, a.Run, a.Existing, stored[0].Run)
				}
			}
		},
	},
}

// startKeyed inserts a tenantless run under a key, at d after the start. The run is due at once.
func (r *rig) startKeyed(id, key string, window, d time.Duration) backend.Inserted {
	r.Helper()
	in := opening(id, r.ref, r.at(d), r.commitID())
	in.Key, in.Window = key, window
	return r.insert(tenantless, in)
}
