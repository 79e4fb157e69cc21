package proptest

import (
	"fmt"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// settles is the hook Trouble where it says when nothing more will follow.
var settles = need{"hook Trouble with Settle", func(_ backend.Features, h Hooks) bool { return h.Trouble != nil && h.Trouble.Settle != nil }}

// troubles are how many calls of each case meet trouble.
const troubles = 24

// T5 where the answer is lost beneath the store: by a connection, a disk or a server.
var troubleCases = []Case{
	{
		ID: "T5.commit-in-trouble", Says: "a commit that met trouble took effect or did not, and sent again is applied or a replay accordingly", needs: []need{settles},
		run: func(r *rig) {
			for n := range troubles {
				id := fmt.Sprintf("run-%d", n)
				d := r.put(id)
				l := r.take(id, 0)
				c := backend.Commit{Proposal: next(d, ends[n%len(ends)], r.start, r.at(ttl)), CheckpointID: r.commitID(), Token: l.Token}
				err := r.troubled(n, func() error {
					_, err := r.store.Commit(r.ctx, backend.System(), c)
					return err
				})
				applied := r.inspect(id).Document.Seq == 2
				r.told("a commit", err, applied)
				r.replays(c, applied)
				r.untouched("a commit sent once more", func() { r.replays(c, true) })
				r.document(c.Document)
				r.events(id, append(opening(id, r.ref, r.start, "").Events, c.Events...))
				if !isTerminal(c.Document.Status) { // out of the way of the next claim
					r.mutate(id, func(d *run.Document) run.Proposal { return next(d, toCancelled, r.start, r.start) })
				}
			}
		},
	},
	{
		ID: "T5.insert-in-trouble", Says: "an insert that met trouble stored the run or nothing, and sent again stores it or is a replay accordingly", needs: []need{settles},
		run: func(r *rig) {
			r.publish(tenantless, r.ref.ID, 0)
			for n := range troubles {
				id := fmt.Sprintf("run-%d", n)
				in := r.draft(id, func(in *backend.Initialization) {
					if n%2 == 1 {
						in.Key = id
					}
				})
				err := r.troubled(n, func() error {
					_, err := r.store.InsertRun(r.ctx, tenantless, in)
					return err
				})
				_, absent := r.store.InspectRun(r.ctx, backend.System(), id)
				r.told("an insert", err, absent == nil)
				again := func(replayed bool) {
					r.Helper()
					r.same("the answer", r.insert(tenantless, in), backend.Inserted{Run: id, Replayed: replayed})
				}
				again(absent == nil)
				r.untouched("an insert sent once more", func() { again(true) })
				r.document(in.Document)
				r.events(id, in.Events)
			}
		},
	},
	{
		ID: "T5.mutation-in-trouble", Says: "a mutation that met trouble took effect or did not, and sent again is applied or a replay accordingly", needs: []need{settles},
		run: func(r *rig) {
			d := r.put("a")
			for n := range troubles {
				id := r.commitID()
				send := func() (backend.Mutated, error) {
					return r.store.MutateRun(r.ctx, backend.System(), "a", id, func(current *run.Document) (backend.Mutation, error) {
						p := next(current, toNow, r.start, r.start)
						return backend.Mutation{Proposal: &p}, nil
					})
				}
				err := r.troubled(n, func() error { _, err := send(); return err })
				applied := r.inspect("a").Document.Seq == d.Seq+1
				r.told("a mutation", err, applied)
				again := func(replayed bool) {
					r.Helper()
					m, err := send()
					r.ok("a mutation sent again", err)
					if m.Replayed != replayed || !m.Committed {
						r.Errorf("a mutation sent again answered replayed %v, committed %v", m.Replayed, m.Committed)
					}
				}
				again(applied)
				r.untouched("a mutation sent once more", func() { again(true) })
				d = next(d, toNow, r.start, r.start).Document
				r.document(d)
			}
			if got := len(r.look().Events["a"]); got != 2+2*troubles {
				r.Errorf("there are %d events; there must be %d", got, 2+2*troubles)
			}
		},
	},
	{
		ID: "T5.claim-in-trouble", Says: "a claim that met trouble without an answer costs each run one attempt and one TTL at most, and takes no more than its limit", needs: []need{settles},
		run: func(r *rig) {
			for _, id := range []string{"a", "b", "c"} {
				r.put(id)
			}
			for n := range troubles {
				p := r.policy(0)
				p.Now, p.Limit, p.MaxAttempts = r.at(2*ttl*time.Duration(n)), 2, 1000
				before := r.look()
				var taken []string
				err := r.troubled(n, func() error {
					batch, err := r.store.ClaimDue(r.ctx, p)
					if err == nil {
						taken = outcomes(batch)
					}
					return err
				})
				after, touched := r.look(), 0
				for id, now := range after.Infos {
					was := before.Infos[id]
					if columnsOf(now) == columnsOf(was) {
						continue
					}
					touched++
					if now.Attempts != was.Attempts+1 || !now.ClaimedAt.Equal(p.Now) {
						r.Errorf("a claim in trouble left %s with %d attempts after %d, claimed at %v", id, now.Attempts, was.Attempts, now.ClaimedAt)
					}
				}
				r.told("a claim", err, touched > 0)
				if touched > p.Limit || err == nil && touched != len(taken) {
					r.Errorf("a claim in trouble, answered %v, took %d runs under a limit of %d, and told of %d", err, touched, p.Limit, len(taken))
				}
			}
		},
	},
}

// troubled makes a call that is to meet trouble, the nth, and hands back its answer when everything has
// come to rest.
func (r *rig) troubled(n int, call func() error) error {
	state := uint32(n)*2654435761 + 1
	r.hooks.Trouble.Make(func(of int) int {
		state = state*1103515245 + 12345
		return int(state>>16) % of
	})
	err := call()
	r.hooks.Trouble.Settle()
	return err
}

// told requires that the answer of a call that met trouble fits what became of it.
func (r *rig) told(what string, err error, effect bool) {
	r.Helper()
	switch nature := backend.Classify(err); {
	case err == nil && !effect:
		r.Errorf("%s that met trouble answered success, and had no effect", what)
	case err != nil && nature == backend.Transient && effect:
		r.Errorf("%s that met trouble answered %q, which is to have no effect, and had one", what, err)
	case err != nil && nature == backend.Permanent:
		r.Errorf("%s that met trouble answered %q, as if it were wrong", what, err)
	}
}
