package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// epoch is the instant from which the tests count.
var epoch = time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC)

func at(d time.Duration) time.Time { return epoch.Add(d) }

// publish stores a graph version of an owner.
func publish(t testing.TB, s *memory.Store, o backend.Owner, id string) graph.Ref {
	t.Helper()
	raw := value.Value(fmt.Sprintf(`{"id":%q}`, id))
	ref := graph.Ref{ID: id, Hash: value.Hash(raw)}
	if err := s.SaveGraph(context.Background(), o, ref, raw); err != nil {
		t.Fatal(err)
	}
	return ref
}

// state is about 1 KB of it.
var state = []run.Channel{{Name: "text", Value: value.Value(`"` + strings.Repeat("x", 1000) + `"`), Version: 1}}

// initial is the first commit of a run that is due at once, as a machine makes it.
func initial(id string, ref graph.Ref, now time.Time) backend.Initialization {
	return backend.Initialization{
		Proposal: run.Proposal{
			Document: &run.Document{
				ID: id, Graph: ref, Status: run.Running, Step: 1, State: state, Pending: []string{"work"},
				Seq: 1, EventSeq: 2, StartedAt: now, UpdatedAt: now,
			},
			Events: []run.Event{
				{Run: id, Seq: 1, Type: run.EventRunInitialized, At: now, Step: 1},
				{Run: id, Seq: 2, Type: run.EventCheckpointCommitted, At: now, Step: 1, Checkpoint: checkpoint.RunInitialized, Commit: 1},
			},
			Type:     checkpoint.RunInitialized,
			Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseNow},
			Now:      now,
		},
		CheckpointID: checkpoint.ID(id + "/1"),
	}
}

// completion is the commit that ends a one-node run.
func completion(d *run.Document, token claim.Token, now time.Time) backend.Commit {
	next := *d
	next.Status, next.Pending, next.Output = run.Done, nil, value.Value(`{}`)
	next.Completed = []run.NodeCount{{Node: "work", Count: 1}}
	next.Seq, next.EventSeq = d.Seq+1, d.EventSeq+5
	next.UpdatedAt, next.FinishedAt = now, now
	events := []run.Event{
		{Type: run.EventNodeCompleted, Node: "work", Task: d.ID + ":1:work", Attempt: 1},
		{Type: run.EventStateUpdated, Field: "text", Version: 2},
		{Type: run.EventEdgeFired, Edge: "done"},
		{Type: run.EventRunCompleted},
		{Type: run.EventCheckpointCommitted, Checkpoint: checkpoint.RunCompleted, Commit: next.Seq},
	}
	for i := range events {
		events[i].Run, events[i].Seq, events[i].At, events[i].Step = d.ID, d.EventSeq+int64(i)+1, now, 1
	}
	return backend.Commit{
		Proposal: run.Proposal{
			Document: &next, Events: events, Type: checkpoint.RunCompleted,
			Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseTerminal}, Expected: d.Seq, Now: now,
		},
		CheckpointID: checkpoint.ID(d.ID + "/2"),
		Token:        token,
	}
}

func policy(now time.Time, limit int) claim.Policy {
	return claim.Policy{Now: now, TTL: time.Minute, Limit: limit, MaxAttempts: 3}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill inserts n runs that are due.
func fill(t testing.TB, s *memory.Store, o backend.Owner, ref graph.Ref, n int) map[string]*run.Document {
	t.Helper()
	documents := make(map[string]*run.Document, n)
	for i := range n {
		in := initial(fmt.Sprintf("%s-%s-%07d", o, ref.ID, i), ref, at(time.Duration(i)*time.Microsecond))
		documents[in.Document.ID] = in.Document
		_, err := s.InsertRun(context.Background(), o, in)
		must(t, err)
	}
	return documents
}

// finish claims and completes every run that is due.
func finish(t testing.TB, s *memory.Store, documents map[string]*run.Document) {
	t.Helper()
	for {
		batch, err := s.ClaimDue(context.Background(), policy(at(time.Hour), 1000))
		must(t, err)
		if len(batch.Leases) == 0 {
			return
		}
		for _, l := range batch.Leases {
			_, err := s.Commit(context.Background(), backend.System(), completion(documents[l.Run], l.Token, at(time.Hour)))
			must(t, err)
		}
	}
}

func BenchmarkInsert(b *testing.B) {
	s := memory.New(memory.Options{})
	ref := publish(b, s, backend.Tenantless(), "g")
	ins := make([]backend.Initialization, b.N)
	for i := range ins {
		ins[i] = initial(fmt.Sprintf("run-%09d", i), ref, at(time.Duration(i)*time.Microsecond))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range ins {
		_, err := s.InsertRun(context.Background(), backend.Tenantless(), ins[i])
		must(b, err)
	}
}

// BenchmarkClaim is the cost of each run of a batch.
func BenchmarkClaim(b *testing.B) {
	for _, limit := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("limit=%d", limit), func(b *testing.B) {
			s := memory.New(memory.Options{})
			ref := publish(b, s, backend.Tenantless(), "g")
			fill(b, s, backend.Tenantless(), ref, b.N)
			b.ReportAllocs()
			b.ResetTimer()
			for claimed := 0; claimed < b.N; {
				batch, err := s.ClaimDue(context.Background(), policy(at(time.Hour), limit))
				must(b, err)
				claimed += len(batch.Leases)
			}
		})
	}
}

func BenchmarkCommit(b *testing.B) {
	s := memory.New(memory.Options{})
	ref := publish(b, s, backend.Tenantless(), "g")
	documents := fill(b, s, backend.Tenantless(), ref, b.N)
	var commits []backend.Commit
	for len(commits) < b.N {
		batch, err := s.ClaimDue(context.Background(), policy(at(time.Hour), 1000))
		must(b, err)
		for _, l := range batch.Leases {
			commits = append(commits, completion(documents[l.Run], l.Token, at(time.Hour)))
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range commits {
		_, err := s.Commit(context.Background(), backend.System(), commits[i])
		must(b, err)
	}
}

func BenchmarkRefresh(b *testing.B) {
	s := memory.New(memory.Options{})
	ref := publish(b, s, backend.Tenantless(), "g")
	fill(b, s, backend.Tenantless(), ref, 1000)
	batch, err := s.ClaimDue(context.Background(), policy(at(time.Hour), 1000))
	must(b, err)
	held := make([]backend.Held, len(batch.Leases))
	for i, l := range batch.Leases {
		held[i] = backend.Held{Run: l.Run, Token: l.Token}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += len(held) {
		for _, err := range s.RefreshClaims(context.Background(), held, at(time.Hour+time.Duration(i)*time.Microsecond)) {
			must(b, err)
		}
	}
}

// BenchmarkClaimBesideHistory is a claim of 100 runs, which are then released, beside
// finished runs and others that are due: neither may make it dearer.
func BenchmarkClaimBesideHistory(b *testing.B) {
	for _, c := range []struct{ finished, due int }{{0, 1000}, {0, 50_000}, {100_000, 1000}, {100_000, 50_000}} {
		b.Run(fmt.Sprintf("finished=%d/due=%d", c.finished, c.due), func(b *testing.B) {
			s := memory.New(memory.Options{})
			finish(b, s, fill(b, s, backend.Tenantless(), publish(b, s, backend.Tenantless(), "old"), c.finished))
			fill(b, s, backend.Tenantless(), publish(b, s, backend.Tenantless(), "new"), c.due)
			p := policy(at(time.Hour), 100)
			p.MaxAttempts = 1 << 40
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				batch, err := s.ClaimDue(context.Background(), p)
				must(b, err)
				for _, l := range batch.Leases {
					must(b, s.ReleaseClaim(context.Background(), l.Run, l.Token, claim.ReleasePolicy{Now: p.Now}))
				}
			}
		})
	}
}

// BenchmarkInterleave is a claim of 100 over many owners, each with a backlog.
func BenchmarkInterleave(b *testing.B) {
	for _, owners := range []int{1, 10, 1000} {
		b.Run(fmt.Sprintf("owners=%d", owners), func(b *testing.B) {
			s := memory.New(memory.Options{})
			for i := range owners {
				o := backend.Tenant(fmt.Sprintf("tenant-%04d", i))
				fill(b, s, o, publish(b, s, o, "g"), 20_000/owners)
			}
			p := policy(at(time.Hour), 100)
			p.MaxAttempts, p.Fairness = 1<<40, claim.Interleave
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				batch, err := s.ClaimDue(context.Background(), p)
				must(b, err)
				for _, l := range batch.Leases {
					must(b, s.ReleaseClaim(context.Background(), l.Run, l.Token, claim.ReleasePolicy{Now: p.Now}))
				}
			}
		})
	}
}

// BenchmarkOneNodeRuns is insert, claim (in batches of 100) and commit of whole runs on
// every core: what the store takes of the engine's budget.
func BenchmarkOneNodeRuns(b *testing.B) {
	s := memory.New(memory.Options{})
	ref := publish(b, s, backend.Tenantless(), "g")
	ins := make([]backend.Initialization, b.N)
	documents := make(map[string]*run.Document, b.N)
	for i := range ins {
		ins[i] = initial(fmt.Sprintf("run-%09d", i), ref, at(time.Duration(i)*time.Microsecond))
		documents[ins[i].Document.ID] = ins[i].Document
	}
	work := make(chan []backend.Initialization, b.N/100+1)
	for len(ins) > 0 {
		n := min(100, len(ins))
		work <- ins[:n]
		ins = ins[n:]
	}
	close(work)
	b.ReportAllocs()
	b.ResetTimer()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for part := range work {
				for i := range part {
					_, err := s.InsertRun(context.Background(), backend.Tenantless(), part[i])
					must(b, err)
				}
				batch, err := s.ClaimDue(context.Background(), policy(at(time.Hour), len(part)))
				must(b, err)
				for _, l := range batch.Leases {
					_, err := s.Commit(context.Background(), backend.System(), completion(documents[l.Run], l.Token, at(time.Hour)))
					must(b, err)
				}
			}
		})
	}
	workers.Wait()
}
