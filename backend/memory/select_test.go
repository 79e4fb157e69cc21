package memory

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// queue is a store with runs in every state, drawn.
type queue struct {
	t     *rapid.T
	store *Store
	refs  []graph.Ref
	runs  int
}

func newQueue(t *rapid.T) *queue {
	q := &queue{t: t, store: New(Options{Now: func() time.Time { return instant(0) }})}
	for g := range 2 {
		raw := value.Value(fmt.Sprintf(`{"id":"g%d"}`, g))
		q.refs = append(q.refs, graph.Ref{ID: fmt.Sprintf("g%d", g), Hash: value.Hash(raw)})
	}
	return q
}

// insert adds a run that is due at a microsecond.
func (q *queue) insert(o backend.Owner, ref graph.Ref, wake int) {
	id := fmt.Sprintf("r%02d", q.runs)
	q.runs++
	in := backend.Initialization{
		Proposal: run.Proposal{
			Document: &run.Document{ID: id, Graph: ref, Status: run.Running, Step: 1, Seq: 1, StartedAt: instant(0), UpdatedAt: instant(0)},
			Type:     checkpoint.RunInitialized,
			Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseAt, At: instant(wake)},
			Now:      instant(0),
		},
		CheckpointID: checkpoint.ID(id),
	}
	for g, known := range q.refs {
		if known == ref {
			if err := q.store.SaveGraph(context.Background(), o, ref, value.Value(fmt.Sprintf(`{"id":"g%d"}`, g))); err != nil {
				q.t.Fatal(err)
			}
		}
	}
	if _, err := q.store.InsertRun(context.Background(), o, in); err != nil {
		q.t.Fatal(err)
	}
}

func (q *queue) claim(p claim.Policy) claim.Batch {
	batch, err := q.store.ClaimDue(context.Background(), p)
	if err != nil {
		q.t.Fatal(err)
	}
	return batch
}

// fill inserts runs of a few owners, and claims some of them at different instants.
func (q *queue) fill() {
	owners := rapid.IntRange(1, 4).Draw(q.t, "owners")
	for range rapid.IntRange(0, 25).Draw(q.t, "runs") {
		o := backend.Tenant(fmt.Sprintf("t%d", rapid.IntRange(1, owners).Draw(q.t, "owner")))
		q.insert(o, rapid.SampledFrom(q.refs).Draw(q.t, "graph"), rapid.IntRange(0, 12).Draw(q.t, "wake"))
	}
	for range rapid.IntRange(0, 4).Draw(q.t, "earlier claims") {
		q.claim(claim.Policy{
			Now: instant(rapid.IntRange(0, 6).Draw(q.t, "claimed at")), TTL: time.Hour, MaxAttempts: 3,
			Limit:    rapid.IntRange(1, 5).Draw(q.t, "claims"),
			Fairness: rapid.SampledFrom([]claim.Fairness{claim.OldestFirst, claim.Interleave}).Draw(q.t, "earlier fairness"),
		})
	}
}

// lock locks some runs, and lists them.
func (q *queue) lock() (locked []string) {
	for i := range q.runs {
		if rapid.IntRange(0, 4).Draw(q.t, "locked") == 0 {
			id := fmt.Sprintf("r%02d", i)
			q.store.row(id).lock.try()
			locked = append(locked, id)
		}
	}
	return locked
}

func (q *queue) policy() claim.Policy {
	p := claim.Policy{
		Now: instant(10), TTL: time.Duration(rapid.IntRange(0, 10_000).Draw(q.t, "ttl")), MaxAttempts: rapid.IntRange(1, 2).Draw(q.t, "attempts"),
		Limit: rapid.IntRange(1, 8).Draw(q.t, "limit"), Prefer: rapid.SampledFrom([]claim.Class{claim.NoClass, claim.Ready, claim.Expired}).Draw(q.t, "prefer"),
		OwnerCap: rapid.SampledFrom([]int{0, 0, 1, 2, 5}).Draw(q.t, "cap"),
	}
	switch rapid.SampledFrom([]string{"", "", "graph", "version", "runs"}).Draw(q.t, "filter") {
	case "graph":
		p.Filter.Graphs = []claim.GraphFilter{{ID: "g0"}}
	case "version":
		p.Filter.Graphs = []claim.GraphFilter{{ID: "g0", Hash: "another"}, {ID: "g1", Hash: q.refs[1].Hash}}
	case "runs":
		for range rapid.IntRange(1, 10).Draw(q.t, "named") {
			p.Filter.Runs = append(p.Filter.Runs, fmt.Sprintf("r%02d", rapid.IntRange(0, 30).Draw(q.t, "name")))
		}
	}
	return p
}

// due are all runs that one claim may take, and what their owners hold already.
func (q *queue) due(p claim.Policy, locked []string) ([]claim.Candidate, func(backend.Owner) int) {
	var due []claim.Candidate
	held := map[backend.Owner]int{}
	for i := range q.runs {
		r := q.store.row(fmt.Sprintf("r%02d", i))
		st := r.now.Load().claim
		if st.Token != "" {
			held[r.owner.id]++
		}
		class, at := st.Class(p.Now, p.TTL)
		in := candidates{policy: p}
		if class == claim.NoClass || slices.Contains(locked, r.id) || !in.inFilter(r.due.lane) ||
			len(p.Filter.Runs) > 0 && !slices.Contains(p.Filter.Runs, r.id) {
			continue
		}
		due = append(due, claim.Candidate{ID: r.id, Owner: r.owner.id, Class: class, At: at, Turn: r.owner.turn})
	}
	return due, func(o backend.Owner) int { return held[o] }
}

func outcomes(b claim.Batch) []string {
	ids := []string{}
	for _, l := range b.Leases {
		ids = append(ids, l.Run)
	}
	for _, p := range b.Poisoned {
		ids = append(ids, p.Run)
	}
	slices.Sort(ids)
	return ids
}

// K2, K4, X4, X10: the few candidates that the index gives up are as good as all.
func TestAClaimTakesWhatSelectTakesOfAllThatAreDue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue(t)
		q.fill()
		locked := q.lock()
		p := q.policy()
		due, held := q.due(p, locked)
		want := []string{}
		for _, i := range claim.Select(due, p, held) {
			want = append(want, due[i].ID)
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, outcomes(q.claim(p))); diff != "" {
			t.Errorf("the claim (- as Select takes of all, + taken):\n%s", diff)
		}
		if err := q.store.due.check(); err != nil {
			t.Error(err)
		}
	})
}

// K5, C12: breadth first over owners, who waits longest first, and both classes served.
func TestAnInterleavedClaimGoesRoundTheOwners(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue(t)
		q.fill()
		locked := q.lock()
		p := q.policy()
		p.Fairness = claim.Interleave
		due, held := q.due(p, locked)
		reference := claim.Select(due, p, held)
		batch := q.claim(p)
		got := outcomes(batch)

		if len(got) != len(reference) {
			t.Fatalf("%d outcomes, Select takes %d", len(got), len(reference))
		}
		byID := map[string]claim.Candidate{}
		left, had := map[claim.Class]int{}, map[claim.Class]int{}
		each, want := map[backend.Owner]int{}, map[backend.Owner]int{}
		for _, c := range due {
			byID[c.ID] = c
			if c.Class == claim.Expired || p.OwnerCap == 0 || held(c.Owner) < p.OwnerCap {
				left[c.Class]++
				each[c.Owner] = 0
			}
		}
		for _, id := range got {
			c, there := byID[id]
			if !there {
				t.Fatalf("%s was not to be claimed", id)
			}
			each[c.Owner]++
			had[c.Class]++
		}
		for _, i := range reference {
			want[due[i].Owner]++
		}
		for o, n := range each {
			for other, m := range each {
				if n > 1 && m == 0 {
					t.Errorf("%v has %d outcomes, %v has none", o, n, other)
				}
			}
			if len(left) == 1 && n != want[o] {
				t.Errorf("%v has %d outcomes, by its turn it has %d", o, n, want[o])
			}
		}
		for class := range left {
			if p.Limit > 1 && had[class] == 0 {
				t.Errorf("no outcome of class %v", class)
			}
		}
	})
}

// K5: nobody waits for more than one round of the others.
func TestTurnsGoRoundAcrossClaims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue(t)
		owners := rapid.IntRange(2, 6).Draw(t, "owners")
		// One owner has a single run, behind the backlogs of all others.
		lone := backend.Tenant("lone")
		for o := range owners - 1 {
			for range 20 {
				q.insert(backend.Tenant(fmt.Sprintf("t%d", o)), q.refs[0], 0)
			}
		}
		q.insert(lone, q.refs[0], 9)
		p := claim.Policy{Now: instant(10), TTL: time.Hour, MaxAttempts: 3, Fairness: claim.Interleave}
		p.Limit = rapid.IntRange(1, 3).Draw(t, "limit")
		served := 0
		for poll := 1; ; poll++ {
			batch := q.claim(p)
			if slices.ContainsFunc(batch.Leases, func(l claim.Lease) bool { return l.Owner == lone }) {
				return
			}
			if served += len(batch.Leases); served >= owners {
				t.Fatalf("after %d polls and %d outcomes the lone run still waits", poll, served)
			}
		}
	})
}
