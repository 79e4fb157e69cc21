package belay_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/run"
)

// TestWriteFormatsThatAreNone: every store refuses to be pinned to a format that this build does not
// write: when it is opened, or with the first document where opening answers no error.
func TestWriteFormatsThatAreNone(t *testing.T) {
	for name, pin := range map[string]func(w *world, format int) error{
		"memory": func(w *world, format int) error {
			s := memory.New(memory.Options{WriteFormat: format})
			_, err := s.InsertRun(w.ctx, backend.Tenantless(), backend.Initialization{Proposal: w.initial(), CheckpointID: "c"})
			return err
		},
		"sqlite": func(w *world, format int) error {
			_, err := sqlite.Open(w.ctx, filepath.Join(t.TempDir(), "belay.db"), sqlite.Options{WriteFormat: format})
			return err
		},
		"postgres": func(w *world, format int) error { // before it looks for a server
			_, err := postgres.Open(w.ctx, "postgres://nobody@127.0.0.1:1/none", postgres.Options{WriteFormat: format})
			return err
		},
	} {
		for _, format := range []int{-1, run.Format + 1, 1 << 40} {
			err := pin(newWorld(t), format)
			refusal, ok := errors.AsType[*backend.ArgumentError](err)
			if !ok || !errors.Is(err, errArgument) || refusal.Argument != "write format" {
				t.Errorf("%s pinned to %d answered %v", name, format, err)
			}
		}
	}
}
