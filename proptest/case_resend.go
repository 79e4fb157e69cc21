package proptest

import (
	"fmt"
	"sync/atomic"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// T5 where the first sending and the next ones are under way at the same time, as after a
// timeout of the caller's.
var resendCases = []Case{
	{
		ID: "T5.commit-at-once", Says: "the same commit sent many times at once is applied once, and every other sending is a replay",
		run: func(r *rig) {
			d := r.put("a")
			l := r.take("a", 0)
			for _, e := range []end{toRetain, toRetain, toRetain, toRetain, toNow} {
				c := backend.Commit{Proposal: next(d, e, r.start, r.start), CheckpointID: r.commitID(), Token: l.Token}
				r.once(func() (bool, error) {
					done, err := r.store.Commit(r.ctx, backend.System(), c)
					return done.Replayed, err
				})
				d = c.Document
				r.document(d)
			}
			if n := len(r.look().Events["a"]); n != 12 {
				r.Errorf("there are %d events; there must be 12", n)
			}
		},
	},
	{
		ID: "T5.insert-at-once", Says: "the same insert sent many times at once is stored once, and every other sending is a replay, with a key and without",
		run: func(r *rig) {
			r.publish(tenantless, r.ref.ID, 0)
			for i, key := range []string{"", "k", "", "l"} {
				in := r.draft(fmt.Sprintf("run-%d", i), func(in *backend.Initialization) { in.Key = key })
				r.once(func() (bool, error) {
					done, err := r.store.InsertRun(r.ctx, tenantless, in)
					if err == nil && (done.Run != in.Document.ID || done.Existing) {
						err = fmt.Errorf("the answer names the run %s, existing %v", done.Run, done.Existing)
					}
					return done.Replayed, err
				})
				r.document(in.Document)
				r.events(in.Document.ID, in.Events)
			}
		},
	},
	{
		ID: "T5.mutation-at-once", Says: "the same mutation sent many times at once commits once, and every other sending is a replay",
		run: func(r *rig) {
			r.put("a")
			for range 5 {
				before, id := r.inspect("a").Document, r.commitID()
				r.once(func() (bool, error) {
					m, err := r.store.MutateRun(r.ctx, backend.System(), "a", id, func(current *run.Document) (backend.Mutation, error) {
						p := next(current, toNow, r.start, r.start)
						return backend.Mutation{Proposal: &p}, nil
					})
					if err == nil && !m.Committed {
						err = fmt.Errorf("the answer does not say that it committed")
					}
					return m.Replayed, err
				})
				if seq := r.inspect("a").Document.Seq; seq != before.Seq+1 {
					r.Errorf("the sequence went from %d to %d", before.Seq, seq)
				}
			}
		},
	},
}

// once makes a call many times at once and requires that exactly one of them is no replay.
func (r *rig) once(send func() (replayed bool, err error)) {
	r.Helper()
	var applied atomic.Int32
	r.together(6, func(int) error {
		replayed, err := send()
		if err == nil && !replayed {
			applied.Add(1)
		}
		return err
	})
	if n := applied.Load(); n != 1 {
		r.Errorf("%d sendings of one call were applied; exactly one must be", n)
	}
}
