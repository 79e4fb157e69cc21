package proptest

import (
	"errors"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// R1: insert.
var insertCases = []Case{
	{
		ID: "R1.stores", Says: "an insert stores document, schedule and events",
		run: func(r *rig) {
			in := r.draft("a", func(in *backend.Initialization) {
				in.Document.Input = []run.Channel{{Name: "order", Value: value.Value(`{"id":42,"price":12.50}`), Version: 1}}
				in.Document.Metadata = map[string]string{"source": "test"}
			})
			got := r.insert(acme, in)
			r.same("the answer", got, backend.Inserted{Run: "a"})
			r.document(in.Document)
			r.events("a", in.Events)
			info := r.inspect("a")
			r.same("the inspection", info, backend.Info{
				Document: in.Document, Owner: acme, Wake: r.start, Type: checkpoint.RunInitialized, CheckpointID: in.CheckpointID,
			})
		},
	},
	{
		ID: "R1.start-at", Says: "a run may be due in the future or in the past",
		run: func(r *rig) {
			r.putAt("later", r.at(time.Hour))
			r.putAt("earlier", r.at(-time.Hour))
			r.expect("later", columns{Status: run.Running, Wake: r.at(time.Hour)})
			r.expect("earlier", columns{Status: run.Running, Wake: r.at(-time.Hour)})
			r.claims(r.policy(0), "earlier")
		},
	},
	{
		ID: "R1.refuses", Says: "what is no initialized run is an invalid commit, and stores nothing",
		run: func(r *rig) {
			r.put("other")
			for _, bad := range []struct {
				name string
				edit func(in *backend.Initialization)
			}{
				{"no document", func(in *backend.Initialization) { in.Document = nil }},
				{"the status waiting", func(in *backend.Initialization) {
					in.Document.Status = run.Waiting
					in.Document.Interrupts = []run.Interrupt{{ID: "q", Node: "work", Question: value.Null(), Status: run.InterruptOpen, RequestedAt: r.start}}
					in.Schedule.Kind = checkpoint.ReleaseExternal
				}},
				{"the status done", func(in *backend.Initialization) {
					in.Document.Status, in.Document.FinishedAt, in.Document.Pending, in.Document.Output = run.Done, r.start, nil, value.Value(`{}`)
					in.Schedule.Kind = checkpoint.ReleaseTerminal
				}},
				{"the status created", func(in *backend.Initialization) { in.Document.Status = run.Created }},
				{"an unknown status", func(in *backend.Initialization) { in.Document.Status = "sleeping" }},
				{"the sequence 0", func(in *backend.Initialization) { in.Document.Seq = 0 }},
				{"the sequence -1", func(in *backend.Initialization) { in.Document.Seq = -1 }},
				{"no start instant", func(in *backend.Initialization) { in.Document.StartedAt = time.Time{} }},
				{"another type", func(in *backend.Initialization) { in.Type = checkpoint.StepCommitted }},
				{"an unknown type", func(in *backend.Initialization) { in.Type = "run_imported" }},
				{"no schedule", func(in *backend.Initialization) { in.Schedule = checkpoint.Schedule{} }},
				{"a schedule of retain without a claim", func(in *backend.Initialization) { in.Schedule.Kind = checkpoint.Retain }},
				{"a schedule without a wake", func(in *backend.Initialization) { in.Schedule.Kind = checkpoint.ReleaseExternal }},
				{"release-at without an instant", func(in *backend.Initialization) { in.Schedule.Kind = checkpoint.ReleaseAt }},
				{"an output before the end", func(in *backend.Initialization) { in.Document.Output = value.Value(`{}`) }},
				{"a finish instant before the end", func(in *backend.Initialization) { in.Document.FinishedAt = r.start }},
				{"a failure without having failed", func(in *backend.Initialization) {
					in.Document.Failure = &run.Failure{Code: "c", Message: "m"}
				}},
				{"an event of another run", func(in *backend.Initialization) { in.Events[0].Run = "other" }},
				{"an event with the sequence 0", func(in *backend.Initialization) { in.Events[0].Seq = 0 }},
			} {
				in := r.draft("a", bad.edit)
				r.untouched("an insert with "+bad.name, func() {
					_, err := r.store.InsertRun(r.ctx, tenantless, in)
					r.refused("InsertRun with "+bad.name, err, backend.ErrInvalidCommit)
				})
				r.absent("a")
			}
		},
	},
	{
		ID: "R1.event-conflict", Says: "two different events under one sequence are an event conflict; equal ones count once",
		run: func(r *rig) {
			in := r.draft("a", nil)
			twice := in
			twice.Events = append([]run.Event{in.Events[1], in.Events[0]}, in.Events...)
			r.insert(tenantless, twice)
			r.events("a", in.Events)

			in = r.draft("b", nil)
			other := in.Events[0]
			other.Step = 7
			in.Events = append(in.Events, other)
			r.untouched("an insert with conflicting events", func() {
				_, err := r.store.InsertRun(r.ctx, tenantless, in)
				r.refused("InsertRun with conflicting events", err, backend.ErrEventConflict)
			})
			r.absent("b")
		},
	},
	{
		ID: "R1.graph", Says: "the owner's graph version must exist: another owner's, another version and another id do not count",
		run: func(r *rig) {
			r.publish(tenantless, r.ref.ID, 0)
			r.publish(acme, r.ref.ID, 1)
			r.publish(globex, "another", 0)
			for _, o := range []backend.Owner{acme, globex} {
				r.untouched("an insert without its graph", func() {
					_, err := r.store.InsertRun(r.ctx, o, r.draft("a", nil))
					r.refused("InsertRun without its graph", err, backend.ErrNotFound)
				})
			}
			r.absent("a")
		},
	},
	{
		ID: "R1.taken-id", Says: "a run id is unique over all owners: a taken one is a conflict that stores nothing and names nobody",
		run: func(r *rig) {
			first := r.putFor(acme, "a", r.start)
			for _, o := range []backend.Owner{acme, globex, tenantless} {
				r.publish(o, r.ref.ID, 0)
				r.untouched("an insert under a taken id", func() {
					in := r.draft("a", nil)
					in.Document = first
					_, err := r.store.InsertRun(r.ctx, o, in)
					r.refused("InsertRun under a taken id", err, backend.ErrConflict)
					if err != nil && strings.Contains(err.Error(), "acme") {
						r.Errorf("the conflict names the owner: %q", err)
					}
				})
			}
		},
	},
	{
		ID: "R1.taken-id-finished", Says: "an id stays taken when its run has finished",
		run: func(r *rig) {
			r.bring("a", toDone)
			_, err := r.store.InsertRun(r.ctx, tenantless, r.draft("a", nil))
			r.refused("InsertRun under a finished run's id", err, backend.ErrConflict)
		},
	},
	{
		ID: "R1.order", Says: "the answers come in the order argument, shape, graph, start key, id",
		run: func(r *rig) {
			keyed := func(in *backend.Initialization) { in.Key = "k" }
			r.insert(tenantless, r.draft("held", keyed))
			r.put("taken")
			misshapen := func(in *backend.Initialization) { in.Type = checkpoint.StepCommitted }
			ungraphed := func(in *backend.Initialization) { in.Document.Graph.Hash = strings.Repeat("0", 64) }
			all := func(edits ...func(*backend.Initialization)) func(*backend.Initialization) {
				return func(in *backend.Initialization) {
					for _, edit := range edits {
						edit(in)
					}
				}
			}
			r.untouched("refused inserts", func() {
				_, err := r.store.InsertRun(r.ctx, backend.Owner{}, r.draft("taken", all(misshapen, ungraphed, keyed)))
				r.refused("InsertRun with a bad argument and a bad shape", err, backend.ErrInvalidArgument)
				_, err = r.store.InsertRun(r.ctx, tenantless, r.draft("taken", all(misshapen, ungraphed, keyed)))
				r.refused("InsertRun with a bad shape and no graph", err, backend.ErrInvalidCommit)
				_, err = r.store.InsertRun(r.ctx, tenantless, r.draft("taken", all(ungraphed, keyed)))
				r.refused("InsertRun without graph under a held key", err, backend.ErrNotFound)
				got, err := r.store.InsertRun(r.ctx, tenantless, r.draft("taken", keyed))
				r.ok("InsertRun under a held key and a taken id", err)
				r.same("the answer under a held key and a taken id", got, backend.Inserted{Run: "held", Existing: true})
			})
		},
	},
	{
		ID: "R1.imported", Says: "the first sequence may be above 1, and the fence then counts from it",
		run: func(r *rig) {
			in := r.draft("a", func(in *backend.Initialization) {
				in.Document.Seq, in.Events[1].Commit, in.Expected = 5, 5, 4
			})
			r.insert(tenantless, in)
			l := r.take("a", 0)
			if l.Seq != 5 {
				r.Errorf("the lease's sequence is %d", l.Seq)
			}
			d := r.commit(l, in.Document, toDone, 0)
			if d.Seq != 6 {
				r.Errorf("the next sequence is %d", d.Seq)
			}
		},
	},
	{
		ID: "R1.too-large", Says: "a document over its limit is refused with the size, and nothing is cut or stored",
		run: func(r *rig) {
			r.publish(tenantless, r.ref.ID, 0)
			in := r.draft("a", func(in *backend.Initialization) {
				big := value.Value(`"` + strings.Repeat("x", 7<<20) + `"`)
				in.Document.Input = []run.Channel{
					{Name: "a", Value: big, Version: 1}, {Name: "b", Value: big, Version: 1}, {Name: "c", Value: big, Version: 1},
				}
			})
			_, err := r.store.InsertRun(r.ctx, tenantless, in)
			r.refused("InsertRun of 21 MiB", err, backend.ErrInvalidCommit)
			var limit *value.LimitError
			if err != nil && !errors.As(err, &limit) {
				r.Errorf("the refusal of a large document must wrap *value.LimitError: %v", err)
			}
			r.absent("a")
		},
	},
}

// R3: start-and-claim.
var startClaimedCases = []Case{
	{
		ID: "R3.lease", Says: "an insert with a claim stores the run claimed, with one attempt, and returns its lease", needs: []need{startClaimed},
		run: func(r *rig) {
			in := r.draft("a", claimed)
			got := r.insert(acme, in)
			if got.Lease == nil {
				r.Fatalf("the insert returned no lease")
			}
			l := *got.Lease
			if l.Token == "" {
				r.Errorf("the lease has no token")
			}
			r.same("the lease", withoutToken(l), claim.Lease{
				Run: "a", Owner: acme, GraphID: r.ref.ID, GraphHash: r.ref.Hash, Seq: 1, ClaimedAt: r.start, Attempt: 1, TTL: ttl, Class: l.Class,
			})
			r.expect("a", columns{Status: run.Running, ClaimedAt: r.start, Attempts: 1})
			r.events("a", in.Events)
			r.claims(r.policy(ttl))
			r.commit(l, in.Document, toDone, time.Second)
		},
	},
	{
		ID: "R3.steal", Says: "a run that was started claimed is stolen like any other, and its attempt counts", needs: []need{startClaimed},
		run: func(r *rig) {
			r.insert(tenantless, r.draft("a", claimed))
			if l := r.take("a", ttl+tick); l.Attempt != 2 || l.Class != claim.Expired {
				r.Errorf("the second launch is attempt %d, class %v", l.Attempt, l.Class)
			}
		},
	},
	{
		ID: "R3.wake-or-claim", Says: "a wake and a claim at once are an invalid commit, and a negative TTL is an invalid argument", needs: []need{startClaimed},
		run: func(r *rig) {
			r.publish(tenantless, r.ref.ID, 0)
			_, err := r.store.InsertRun(r.ctx, tenantless, r.draft("a", func(in *backend.Initialization) {
				claimed(in)
				in.Schedule = checkpoint.Schedule{Kind: checkpoint.ReleaseAt, At: r.at(time.Hour)}
			}))
			r.refused("InsertRun with a wake and a claim", err, backend.ErrInvalidCommit)
			_, err = r.store.InsertRun(r.ctx, tenantless, r.draft("a", func(in *backend.Initialization) {
				claimed(in)
				in.Claim.TTL = -tick
			}))
			r.refused("InsertRun with a negative TTL", err, backend.ErrInvalidArgument)
			r.absent("a")
		},
	},
	{
		ID: "R3.existing", Says: "an insert with a claim under a held key answers the first run and no lease", needs: []need{startClaimed},
		run: func(r *rig) {
			r.insert(tenantless, r.draft("a", func(in *backend.Initialization) { in.Key = "k" }))
			r.untouched("an insert under a held key", func() {
				got := r.insert(tenantless, r.draft("b", func(in *backend.Initialization) {
					claimed(in)
					in.Key = "k"
				}))
				r.same("the answer", got, backend.Inserted{Run: "a", Existing: true})
			})
		},
	},
	{
		ID: "R3.lost-answer", Says: "if the answer of a start-and-claim is lost, sending it again returns no lease, and it cost one TTL and one attempt", needs: []need{startClaimed},
		run: func(r *rig) {
			in := r.draft("a", claimed)
			r.insert(tenantless, in)
			r.untouched("sending an insert again", func() {
				r.same("the answer", r.insert(tenantless, in), backend.Inserted{Run: "a", Replayed: true})
			})
			if l := r.take("a", ttl+tick); l.Attempt != 2 {
				r.Errorf("the next launch is attempt %d", l.Attempt)
			}
		},
	},
}

// claimed makes a drafted run start claimed.
func claimed(in *backend.Initialization) {
	in.Claim = &backend.StartClaim{TTL: ttl}
	in.Schedule = checkpoint.Schedule{Kind: checkpoint.Retain}
}

// withoutToken is a lease without its secret, to be compared.
func withoutToken(l claim.Lease) claim.Lease {
	l.Token = ""
	return l
}
