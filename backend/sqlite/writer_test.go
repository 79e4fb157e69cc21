package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
)

func insertion(t *testing.T, s *Store, id string) *operation {
	t.Helper()
	i, err := s.newInsert(backend.Tenantless(), opening(id))
	must(t, err)
	return i.operation()
}

func exists(t *testing.T, s *Store, id string) bool {
	t.Helper()
	_, err := s.FetchRun(context.Background(), backend.System(), id)
	if err != nil && !errors.Is(err, backend.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// TestAFailingMemberLeavesNothing: a member of a group that fails after it has written is
// undone, and its neighbours before and behind it are stored.
func TestAFailingMemberLeavesNothing(t *testing.T) {
	s := openStore(t, Options{})
	publishGraph(t, s)
	before, behind := insertion(t, s, "before"), insertion(t, s, "behind")
	half := insertion(t, s, "half")
	broken, whole := errors.New("broken"), half.run
	times := 0
	half.run = func(c *conn, careful bool) error {
		times++
		return errors.Join(whole(c, careful), broken)
	}
	s.writer.submit(before, half, behind)
	for _, op := range []*operation{before, half, behind} {
		_ = s.writer.await(context.Background(), op)
	}
	if before.err != nil || behind.err != nil || !errors.Is(half.err, broken) {
		t.Errorf("answers: %v, %v, %v", before.err, half.err, behind.err)
	}
	if !exists(t, s, "before") || exists(t, s, "half") || !exists(t, s, "behind") {
		t.Error("the failing member took a neighbour along, or stayed")
	}
	if times != 2 {
		t.Errorf("the member ran %d times, not once and once more in a savepoint", times)
	}
}

// TestALostTransactionIsToldToAll: when SQLite gives the whole transaction up, nobody in
// the group is answered as stored, nothing is, and the next group works.
func TestALostTransactionIsToldToAll(t *testing.T) {
	s := openStore(t, Options{})
	publishGraph(t, s)
	before, behind := insertion(t, s, "before"), insertion(t, s, "behind")
	lost := &operation{name: "lose it", run: func(c *conn, _ bool) error {
		return errors.Join(c.run(context.Background(), "rollback"), c.run(context.Background(), "select x from nowhere"))
	}}
	s.writer.submit(before, lost, behind)
	for _, op := range []*operation{before, lost, behind} {
		err := s.writer.await(context.Background(), op)
		if _, ok := errors.AsType[*backend.InfrastructureError](err); !ok {
			t.Errorf("%s: %v", op.name, err)
		}
	}
	if exists(t, s, "before") || exists(t, s, "behind") {
		t.Error("a member was stored outside of its group")
	}
	insertRun(t, s, "later")
}

// TestOtherWritersDelayAndDoNotFail: while another process holds the write lock, callers
// wait, readers read, and everybody is answered well.
func TestOtherWritersDelayAndDoNotFail(t *testing.T) {
	s := openStore(t, Options{})
	publishGraph(t, s)
	insertRun(t, s, "first")
	release := holdLock(t, s.Path())
	var wg sync.WaitGroup
	for n := range 5 {
		wg.Go(func() { insertRun(t, s, fmt.Sprint("run-", n)) })
	}
	if !exists(t, s, "first") {
		t.Error("a reader sees nothing")
	}
	time.AfterFunc(300*time.Millisecond, release)
	wg.Wait()
}

// holdLock takes the write lock on a connection of its own, as another process does.
func holdLock(t *testing.T, path string) (release func()) {
	t.Helper()
	c, err := dial(fileURI(path, "rw", nil))
	must(t, err)
	must(t, c.run(context.Background(), "begin immediate"))
	var once sync.Once
	release = func() {
		once.Do(func() {
			if err := errors.Join(c.run(context.Background(), "rollback"), c.close()); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(release)
	return release
}

// TestTheWaitForOtherWritersIsBounded: behind the bound the answer is transient and busy.
func TestTheWaitForOtherWritersIsBounded(t *testing.T) {
	s := openStore(t, Options{BusyTimeout: 30 * time.Millisecond})
	publishGraph(t, s)
	release := holdLock(t, s.Path())
	_, err := s.InsertRun(context.Background(), backend.Tenantless(), opening("a"))
	if !errors.Is(err, backend.ErrBusy) || backend.Classify(err) != backend.Transient {
		t.Errorf("%v", err)
	}
	release()
	insertRun(t, s, "a")
}

// TestAWaitingCallerMayLeave: the end of its context takes a caller out of the queue, and
// nothing of it is stored.
func TestAWaitingCallerMayLeave(t *testing.T) {
	s := openStore(t, Options{})
	publishGraph(t, s)
	release := holdLock(t, s.Path())
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := s.InsertRun(ctx, backend.Tenantless(), opening("a"))
	if !errors.Is(err, context.DeadlineExceeded) || backend.Classify(err) != backend.Unknown {
		t.Errorf("%v", err)
	}
	release()
	insertRun(t, s, "b")
	if exists(t, s, "a") {
		t.Error("it was stored")
	}
}

// TestCloseAnswersTheQueue: who waits for the lock when the store closes is told so.
func TestCloseAnswersTheQueue(t *testing.T) {
	s := openStore(t, Options{})
	publishGraph(t, s)
	holdLock(t, s.Path())
	op := insertion(t, s, "a")
	s.writer.submit(op)
	must(t, s.Close())
	if err := s.writer.await(context.Background(), op); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// TestNothingIsAnsweredAsStoredInALostFile: once the file is deleted, or another lies in its
// place, a write fails for good instead of going where nobody finds it.
func TestNothingIsAnsweredAsStoredInALostFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // an open file cannot be deleted there
	}
	for name, lose := range map[string]func(path string) error{
		"deleted":  os.Remove,
		"moved":    func(path string) error { return os.Rename(path, path+".old") },
		"replaced": func(path string) error { return errors.Join(os.Rename(path, path+".old"), create(path)) },
	} {
		s := openStore(t, Options{})
		publishGraph(t, s)
		insertRun(t, s, "before")
		must(t, lose(s.Path()))
		_, err := s.InsertRun(context.Background(), backend.Tenantless(), opening("after"))
		if e, ok := errors.AsType[*backend.InfrastructureError](err); !ok || e.Nature != backend.Permanent {
			t.Errorf("%s: %v", name, err)
		}
		if exists(t, s, "after") {
			t.Errorf("%s: what was refused is stored", name)
		}
	}
}
