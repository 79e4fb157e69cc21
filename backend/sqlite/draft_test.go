package sqlite

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// The tests write their documents by hand: small, and durable-valid.

var testGraph = []byte(`{"edges":{"start":{"from":"$start","to":"work"}},"id":"proof","nodes":{"work":{"use":"work","version":1}}}`)

func testRef() graph.Ref {
	sum := sha256.Sum256(testGraph)
	return graph.Ref{ID: "proof", Hash: hex.EncodeToString(sum[:])}
}

func publishGraph(t testing.TB, s *Store) graph.Ref {
	t.Helper()
	if err := s.SaveGraph(context.Background(), backend.Tenantless(), testRef(), testGraph); err != nil {
		t.Error(err)
	}
	return testRef()
}

func newCheckpointID() checkpoint.ID { return checkpoint.ID(ulid.Make().String()) }

// opening is a run's first commit, due at once.
func opening(id string) backend.Initialization {
	d := &run.Document{
		ID: id, Graph: testRef(), Status: run.Running, Step: 1, Pending: []string{"work"}, Seq: 1, EventSeq: 2,
		State:     []run.Channel{{Name: "n", Value: value.Value(`"` + strings.Repeat("x", 900) + `"`), Version: 1}},
		StartedAt: testClock, UpdatedAt: testClock,
	}
	return backend.Initialization{
		Proposal: run.Proposal{
			Document: d, Type: checkpoint.RunInitialized, Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseNow}, Now: testClock,
			Events: []run.Event{{Run: id, Seq: 1, Type: run.EventRunInitialized, At: testClock, Step: 1}, closing(d, checkpoint.RunInitialized)},
		},
		CheckpointID: newCheckpointID(),
	}
}

func closing(d *run.Document, kind checkpoint.Type) run.Event {
	return run.Event{
		Run: d.ID, Seq: d.EventSeq, Type: run.EventCheckpointCommitted, At: testClock, Step: d.Step, Checkpoint: kind, Commit: d.Seq,
	}
}

// next is the next commit of a run: one more step, or with done its end.
func next(prev *run.Document, done bool) run.Proposal {
	d := *prev
	d.Seq, d.Step, d.EventSeq = prev.Seq+1, prev.Step+1, prev.EventSeq+2
	p := run.Proposal{
		Document: &d, Expected: prev.Seq, Type: checkpoint.StepCommitted, Schedule: checkpoint.Schedule{Kind: checkpoint.Retain}, Now: testClock,
	}
	fact := run.Event{Run: d.ID, Seq: prev.EventSeq + 1, Type: run.EventNodeCompleted, At: testClock, Step: prev.Step, Node: "work"}
	if done {
		d.Status, d.FinishedAt, d.Pending, d.Output = run.Done, testClock, nil, value.Value(`{}`)
		p.Type, p.Schedule.Kind = checkpoint.RunCompleted, checkpoint.ReleaseTerminal
		fact.Type, fact.Node = run.EventRunCompleted, ""
	}
	p.Events = []run.Event{fact, closing(&d, p.Type)}
	return p
}

// insertRun inserts a run of the published graph.
func insertRun(t testing.TB, s *Store, id string) *run.Document {
	t.Helper()
	in := opening(id)
	if _, err := s.InsertRun(context.Background(), backend.Tenantless(), in); err != nil {
		t.Errorf("insert %s: %v", id, err)
	}
	return in.Document
}

// claimRun claims one run by name.
func claimRun(t testing.TB, s *Store, id string) claim.Lease {
	t.Helper()
	b, err := s.ClaimDue(context.Background(), claim.Policy{
		Now: testClock.Add(time.Hour), TTL: time.Minute, Limit: 1, MaxAttempts: 10, Filter: claim.Filter{Runs: []string{id}},
	})
	if err != nil || len(b.Leases) != 1 {
		t.Fatalf("claim %s: %v %v", id, b, err)
	}
	return b.Leases[0]
}

func commitOf(l claim.Lease, p run.Proposal) backend.Commit {
	return backend.Commit{Proposal: p, CheckpointID: newCheckpointID(), Token: l.Token}
}
