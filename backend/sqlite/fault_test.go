package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

// TestH20EveryFailureOfTheDisk: each write, truncation and flush of an insert, a claim and a
// commit fails once, with a full disk and with an input/output error. The caller is told
// that it may send the same call again; sent again it has exactly one effect, the store goes
// on, and is sound.
func TestH20EveryFailureOfTheDisk(t *testing.T) {
	for name, code := range map[string]int32{"full": lib.SQLITE_FULL, "write": lib.SQLITE_IOERR_WRITE, "fsync": lib.SQLITE_IOERR_FSYNC} {
		t.Run(name, func(t *testing.T) {
			path := freshFile(t)
			d := interpose(t, filepath.Dir(path))
			// A small log, so that copying it into the file fails too.
			s := openPath(t, path, Options{CheckpointPages: 8})
			publishGraph(t, s)
			happened := 0
			for n := range 40 {
				d.fail(n%20, code)
				id := fmt.Sprintf("run-%d", n)
				in := opening(id)
				retried(t, "insert", func() error {
					_, err := s.InsertRun(context.Background(), backend.Tenantless(), in)
					return err
				})
				var l claim.Lease
				retried(t, "claim", func() error {
					b, err := s.ClaimDue(context.Background(), claim.Policy{
						Now: testClock.Add(time.Duration(n+1) * time.Hour), TTL: time.Minute, Limit: 1, MaxAttempts: 10, Filter: claim.Filter{Runs: []string{id}},
					})
					if err == nil && len(b.Leases) != 1 {
						return fmt.Errorf("%d leases", len(b.Leases))
					}
					if err == nil {
						l = b.Leases[0]
					}
					return err
				})
				c := commitOf(l, next(in.Document, true))
				retried(t, "commit", func() error {
					_, err := s.Commit(context.Background(), backend.System(), c)
					return err
				})
				if !d.pending() {
					happened++
				}
				d.fail(-1, 0)
			}
			if happened < 20 {
				t.Errorf("only %d failures happened", happened)
			}
			if found := auditAll(t, s, backend.AuditPolicy{}); len(found) > 0 {
				t.Errorf("%+v", found)
			}
		})
	}
}

// retried calls once more where the first answer allows it.
func retried(t *testing.T, what string, call func() error) {
	t.Helper()
	err := call()
	if err == nil {
		return
	}
	if _, ok := errors.AsType[*backend.InfrastructureError](err); !ok || backend.Classify(err) == backend.Permanent {
		t.Errorf("%s: %v, which is %v", what, err, backend.Classify(err))
	}
	if again := call(); again != nil {
		t.Errorf("%s again: %v", what, again)
	}
}
