package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
)

// TestReadersWithoutAGapDoNotLetTheLogGrow keeps the log in use at every moment: the
// readers of a store take turns, each with a snapshot that overlaps the next one's.
func TestReadersWithoutAGapDoNotLetTheLogGrow(t *testing.T) {
	const pages = 50
	path := filepath.Join(t.TempDir(), "belay.db")
	s, err := Open(context.Background(), path, Options{CheckpointPages: pages, Synchronous: Normal, SharedDirectory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.writer.wal.patience = time.Minute // a machine that is busy with other things must not be the reason
	publishGraph(t, s)

	over := make(chan struct{})
	var reading sync.WaitGroup
	for range s.opts.Readers {
		reading.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				err := s.readers.snapshot(context.Background(), func(c *conn) error {
					err := c.read(context.Background(), "select 1 from belay_runs limit 1", func(row) error { return nil })
					time.Sleep(2 * time.Millisecond) // what it does with its snapshot takes a while
					return err
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}

	const limit = pages * pageSize * walFactor
	var written, longest int64
	for i := 0; written < 4*limit; i++ {
		in := opening(fmt.Sprintf("run-%d", i))
		if _, err := s.InsertRun(context.Background(), backend.Tenantless(), in); err != nil {
			t.Fatal(err)
		}
		written += 2 * pageSize
		if info, err := os.Stat(path + "-wal"); err == nil {
			longest = max(longest, info.Size())
		}
	}
	close(over)
	reading.Wait()
	if longest <= limit {
		t.Fatalf("the log had %d bytes at most: the readers left gaps, and nothing was proved", longest)
	}
	if longest > 2*limit {
		t.Errorf("the log grew to %d bytes, and is to be truncated at %d", longest, int64(limit))
	}
}
