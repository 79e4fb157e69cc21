package sqlite

import (
	"context"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

// TestAFilterDoesNotEndTheSearch: with interleaving, an expired run that the filter does
// not admit stands before one that it does.
func TestAFilterDoesNotEndTheSearch(t *testing.T) {
	s := openStore(t, Options{})
	publishGraph(t, s)
	for _, id := range []string{"a", "b"} {
		in := opening(id)
		in.Schedule.Kind, in.Claim = 1, &backend.StartClaim{TTL: time.Minute}
		_, err := s.InsertRun(context.Background(), backend.Tenantless(), in)
		must(t, err)
	}
	runSQL(t, s.Path(), "pragma foreign_keys = 0; update belay_runs set graph_hash = 'other' where id = 'a'")
	b, err := s.ClaimDue(context.Background(), claim.Policy{
		Now: testClock.Add(time.Hour), TTL: time.Minute, Limit: 1, MaxAttempts: 5, Fairness: claim.Interleave,
		Filter: claim.Filter{Graphs: []claim.GraphFilter{{ID: testRef().ID, Hash: testRef().Hash}}},
	})
	if err != nil || len(b.Leases) != 1 || b.Leases[0].Run != "b" {
		t.Errorf("%+v %v", b, err)
	}
}
