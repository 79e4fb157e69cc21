package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// TestH35TurnsAreWaitedForByNobody (H35, K5): claims under interleaving keep whose turn it was, and where
// somebody else is doing so they claim all the same, at once. Other claims write no turn.
func TestH35TurnsAreWaitedForByNobody(t *testing.T) {
	s := testStore(t, testPool(t), Options{PollOnly: true})
	at := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	raw := []byte(`{"id":"turns"}`)
	ref := graph.Ref{ID: "turns", Hash: value.Hash(raw)}
	for _, owner := range []string{"a", "b"} {
		if err := s.SaveGraph(t.Context(), backend.Tenant(owner), ref, raw); err != nil {
			t.Fatal(err)
		}
		for n := range 10 {
			id := fmt.Sprintf("%s-%d", owner, n)
			d := &run.Document{ID: id, Graph: ref, Status: run.Running, Seq: 1, EventSeq: 1, StartedAt: at, UpdatedAt: at}
			_, err := s.InsertRun(t.Context(), backend.Tenant(owner), backend.Initialization{
				Proposal: run.Proposal{
					Document: d, Type: checkpoint.RunInitialized, Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseNow}, Now: at,
					Events: []run.Event{{Run: id, Seq: 1, Type: run.EventCheckpointCommitted, At: at, Checkpoint: checkpoint.RunInitialized, Commit: 1}},
				},
				CheckpointID: checkpoint.ID("1 of " + id),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	claims := func(fairness claim.Fairness) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		got, err := s.ClaimDue(ctx, claim.Policy{Now: at, TTL: time.Minute, Limit: 2, MaxAttempts: 3, Fairness: fairness})
		if err != nil || len(got.Leases) != 2 {
			t.Errorf("a claim of 2 gave %d, %v", len(got.Leases), err)
		}
	}
	turns := func(want string) {
		t.Helper()
		var got string
		err := s.pool.QueryRow(t.Context(), inSchema(`select coalesce(string_agg(owner || ' ' || turn, ', ' order by owner), '') from :"schema".turns`, s.opts.Schema)).Scan(&got)
		if err != nil || got != want {
			t.Errorf("the turns are %q, want %q: %v", got, want, err)
		}
	}
	meanwhile := func(text string, do func()) {
		t.Helper()
		tx, err := s.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		if _, err := tx.Exec(t.Context(), inSchema(text, s.opts.Schema)); err != nil {
			t.Fatal(err)
		}
		do()
	}
	claims(claim.OldestFirst)
	turns("")
	meanwhile(fmt.Sprintf("select pg_advisory_xact_lock(%d)", s.lockKey("turns")), func() { claims(claim.Interleave) })
	turns("")
	claims(claim.Interleave)
	turns("a 1, b 2")
	meanwhile(`select from :"schema".turns where owner = 'a' for update`, func() { claims(claim.Interleave) })
	turns("a 1, b 4")
	claims(claim.Interleave)
	turns("a 5, b 6")
}
