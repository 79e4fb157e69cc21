package proptest

import (
	"errors"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// F2 and X8: the host's own transaction.
var hostCases = []Case{
	{
		ID: "F2.commits", Says: "what was started in the host's transaction is there with its commit, and can be claimed", needs: []need{host},
		run: func(r *rig) {
			in := r.draft("a", nil)
			err := r.hooks.Host(r.ctx, func(tx backend.Starter) error {
				ref, raw := published(r.ref.ID, 0)
				if err := tx.SaveGraph(r.ctx, acme, ref, raw); err != nil {
					return err
				}
				if _, err := tx.InsertRun(r.ctx, acme, in); err != nil {
					return err
				}
				got, err := tx.FetchRun(r.ctx, backend.Of(acme), "a")
				r.same("the document within the transaction", got, in.Document)
				return err
			})
			r.ok("the host's transaction", err)
			r.document(in.Document)
			r.events("a", in.Events)
			r.take("a", 0)
		},
	},
	{
		ID: "F2.rolls-back", Says: "after a rollback of the host's transaction there is no run, no event, no graph, no key and no wake", needs: []need{host},
		run: func(r *rig) {
			r.put("other")
			r.take("other", 0)
			mine := errors.New("the host changed its mind")
			r.untouched("a transaction that is rolled back", func() {
				err := r.hooks.Host(r.ctx, func(tx backend.Starter) error {
					ref, raw := published("another", 0)
					if err := tx.SaveGraph(r.ctx, tenantless, ref, raw); err != nil {
						return err
					}
					if _, err := tx.InsertRun(r.ctx, tenantless, r.draft("a", func(in *backend.Initialization) { in.Key = "k" })); err != nil {
						return err
					}
					return mine
				})
				if !errors.Is(err, mine) {
					r.Errorf("the host's transaction answered %v", err)
				}
			})
			r.absent("a")
			r.claims(r.policy(0))
			r.same("the answer under the key", r.startKeyed("b", "k", 0, 0), backend.Inserted{Run: "b"})
		},
	},
	{
		ID: "F2.refused-start", Says: "a start that is refused leaves the host's transaction usable", needs: []need{host},
		run: func(r *rig) {
			r.put("taken")
			err := r.hooks.Host(r.ctx, func(tx backend.Starter) error {
				_, err := tx.InsertRun(r.ctx, tenantless, r.draft("taken", nil))
				r.refused("InsertRun under a taken id", err, backend.ErrConflict)
				_, err = tx.InsertRun(r.ctx, tenantless, r.draft("b", func(in *backend.Initialization) { in.Document.Graph.ID = "absent" }))
				r.refused("InsertRun without its graph", err, backend.ErrNotFound)
				_, err = tx.InsertRun(r.ctx, tenantless, r.draft("b", nil))
				return err
			})
			r.ok("the host's transaction", err)
			r.expect("b", columns{Status: run.Running, Wake: r.start})
		},
	},
	{
		ID: "F2.replayed", Says: "a start repeated in a later transaction of the host is a replay", needs: []need{host},
		run: func(r *rig) {
			in := r.draft("a", nil)
			r.insert(tenantless, in)
			err := r.hooks.Host(r.ctx, func(tx backend.Starter) error {
				got, err := tx.InsertRun(r.ctx, tenantless, in)
				r.same("the answer", got, backend.Inserted{Run: "a", Replayed: true})
				return err
			})
			r.ok("the host's transaction", err)
		},
	},
}
