package sqlite

import (
	"context"
	"testing"
	"time"
)

var testClock = time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC)

func openStore(t *testing.T, opts Options) *Store {
	t.Helper()
	return openPath(t, freshFile(t), opts)
}

func openPath(t *testing.T, path string, opts Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}
