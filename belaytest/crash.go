package belaytest

import (
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

// Crash lets a process fall right after it has claimed n due runs: the claims are held by nobody until they
// expire, and each has used up an attempt.
func Crash(t testing.TB, store backend.Store, n int) {
	t.Helper()
	// No run is poisoned here, and no other claim is taken over.
	policy := claim.Policy{TTL: 1000 * time.Hour, Limit: n, MaxAttempts: 1 << 30}
	batch, err := store.ClaimDue(t.Context(), policy)
	if err != nil {
		t.Fatalf("belaytest: claiming: %v", err)
	}
	if len(batch.Leases) != n {
		t.Fatalf("belaytest: %d runs are due, want %d to crash under", len(batch.Leases), n)
	}
}
