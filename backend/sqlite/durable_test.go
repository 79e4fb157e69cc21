package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/belay-run/belay/backend"
)

// TestAnswersComeAfterASync: under FULL, the log is flushed between the moment that a
// caller hands a commit in and the moment that it is answered, alone and in groups.
func TestAnswersComeAfterASync(t *testing.T) {
	path := freshFile(t)
	d := interpose(t, filepath.Dir(path))
	s := openPath(t, path, Options{})
	publishGraph(t, s)
	for _, callers := range []int{1, 8} {
		inParallel(callers, func(caller int) {
			for n := range 20 {
				before := d.syncs("belay.db-wal")
				insertRun(t, s, fmt.Sprintf("run-%d-%d-%d", callers, caller, n))
				if d.syncs("belay.db-wal") == before {
					t.Errorf("insert %d of caller %d of %d was answered without a sync", n, caller, callers)
				}
			}
		})
	}
	if grouped := d.syncs("belay.db-wal"); grouped >= 20+8*20 {
		t.Errorf("%d syncs for %d inserts: they were not grouped", grouped, 20+8*20)
	}
}

// TestNormalDoesNotSync: the risk that Synchronous Normal names is real.
func TestNormalDoesNotSync(t *testing.T) {
	path := freshFile(t)
	d := interpose(t, filepath.Dir(path))
	s := openPath(t, path, Options{Synchronous: Normal})
	publishGraph(t, s)
	before := d.syncs("belay.db-wal")
	for n := range 10 {
		insertRun(t, s, fmt.Sprintf("run-%d", n))
	}
	if after := d.syncs("belay.db-wal"); after != before {
		t.Errorf("%d syncs under NORMAL, with the log far from its limit", after-before)
	}
}

// TestPowerLoss: whenever the power fails, and whatever of the unflushed writes has reached
// the disk, every answered commit is there when the file is opened again.
func TestPowerLoss(t *testing.T) {
	path := freshFile(t)
	d := interpose(t, filepath.Dir(path))
	// A small log, so that it is copied into the file and begun anew many times.
	s := openPath(t, path, Options{CheckpointPages: 40})
	publishGraph(t, s)
	answered, lost := crashes(t, d, s, 12)
	if len(lost) > 0 {
		t.Errorf("of %d answered inserts, %d are gone, %s among them", answered, len(lost), lost[0])
	}
}

// TestPowerLossIsNoticed: the test above fails on a disk that forgets its syncs.
func TestPowerLossIsNoticed(t *testing.T) {
	path := freshFile(t)
	d := interpose(t, filepath.Dir(path))
	s := openPath(t, path, Options{})
	publishGraph(t, s)
	d.mu.Lock()
	d.lies = true
	d.mu.Unlock()
	if answered, lost := crashes(t, d, s, 3); len(lost) == 0 {
		t.Errorf("%d answered inserts on a disk that flushes nothing, and all are there", answered)
	}
}

// crashes inserts from several goroutines and lets the power fail n times meanwhile. It
// tells how many inserts were answered before the last failure, and which of those answered
// before a failure are gone after it.
func crashes(t *testing.T, d *disk, s *Store, n int) (answered int, lost []string) {
	t.Helper()
	var mu sync.Mutex
	var done []string
	more := sync.NewCond(&mu)
	stop := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		inParallel(4, func(caller int) {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("run-%d-%d", caller, i)
				insertRun(t, s, id)
				mu.Lock()
				done = append(done, id)
				more.Broadcast()
				mu.Unlock()
			}
		})
	}()
	r := rand.New(rand.NewPCG(1, 2))
	for range n {
		mu.Lock()
		for want := len(done) + 5 + r.IntN(15); len(done) < want; {
			more.Wait()
		}
		before := append([]string(nil), done...)
		mu.Unlock()
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		d.losePower(t, r, dir)
		answered = len(before)
		lost = append(lost, missing(t, filepath.Join(dir, "belay.db"), before)...)
	}
	close(stop)
	<-finished
	return answered, lost
}

// missing opens what is left and tells which runs are not in it.
func missing(t *testing.T, path string, ids []string) (lost []string) {
	t.Helper()
	s, err := Open(context.Background(), path, Options{Damaged: true})
	if err != nil {
		return ids
	}
	defer s.Close()
	if err := s.readers.use(context.Background(), func(c *conn) error { return checkIntegrity(context.Background(), c) }); err != nil {
		t.Errorf("what is left is damaged: %v", err)
	}
	for _, id := range ids {
		if _, err := s.FetchRun(context.Background(), backend.System(), id); err != nil {
			lost = append(lost, id)
		}
	}
	return lost
}

func inParallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
