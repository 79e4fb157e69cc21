package sqlite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// cancelled decides on a cancel.
func cancelled(d *run.Document) (backend.Mutation, error) {
	p, changed, err := run.Cancel(d, "enough", testClock)
	if err != nil || !changed {
		return backend.Mutation{}, err
	}
	return backend.Mutation{Proposal: &p}, nil
}

// overtaken lets a mutation lose every race it may lose, by commits of the run's holder,
// and then decides with decide, under the lock.
func overtaken(t *testing.T, s *Store, decide backend.MutateFunc) backend.MutateFunc {
	t.Helper()
	d := insertRun(t, s, "a")
	l := claimRun(t, s, "a")
	calls := 0
	return func(current *run.Document) (backend.Mutation, error) {
		if calls++; calls > racesLost {
			return decide(current)
		}
		p := next(d, false)
		if _, err := s.Commit(context.Background(), backend.System(), commitOf(l, p)); err != nil {
			t.Error(err)
		}
		d = p.Document
		return cancelled(current)
	}
}

// TestABusyRunDoesNotStarveAMutation: overtaken a few times, it is decided under the lock,
// on the newest document.
func TestABusyRunDoesNotStarveAMutation(t *testing.T) {
	s := openStore(t, Options{})
	publishGraph(t, s)
	seq := int64(0)
	m, err := s.MutateRun(context.Background(), backend.System(), "a", newCheckpointID(), overtaken(t, s, func(d *run.Document) (backend.Mutation, error) {
		seq = d.Seq
		return cancelled(d)
	}))
	if err != nil || !m.Committed || m.Document.Status != run.Cancelled || seq != racesLost+1 {
		t.Errorf("%+v %v, decided on sequence %d", m, err, seq)
	}
}

// TestAMutationHoldsTheWriterForABound: a function that does not answer in time fails with
// a transient error, and nobody else does.
func TestAMutationHoldsTheWriterForABound(t *testing.T) {
	s := openStore(t, Options{MutateTimeout: 20 * time.Millisecond})
	publishGraph(t, s)
	others := make(chan struct{})
	_, err := s.MutateRun(context.Background(), backend.System(), "a", newCheckpointID(), overtaken(t, s, func(d *run.Document) (backend.Mutation, error) {
		go func() {
			defer close(others)
			insertRun(t, s, "b")
		}()
		<-others
		return cancelled(d)
	}))
	if backend.Classify(err) != backend.Transient {
		t.Errorf("%v", err)
	}
	if d, err := s.FetchRun(context.Background(), backend.System(), "a"); err != nil || d.Status != run.Running {
		t.Errorf("the late decision counted: %v %v", d, err)
	}
}

// TestAnAnswerUnderTheLockIsHandedBack: no change and an error, under the lock too.
func TestAnAnswerUnderTheLockIsHandedBack(t *testing.T) {
	s := openStore(t, Options{})
	publishGraph(t, s)
	mine := errors.New("mine")
	_, err := s.MutateRun(context.Background(), backend.System(), "a", newCheckpointID(), overtaken(t, s, func(*run.Document) (backend.Mutation, error) {
		return backend.Mutation{}, mine
	}))
	if err != mine {
		t.Errorf("%v", err)
	}
	s2 := openStore(t, Options{})
	publishGraph(t, s2)
	m, err := s2.MutateRun(context.Background(), backend.System(), "a", newCheckpointID(), overtaken(t, s2, func(*run.Document) (backend.Mutation, error) {
		return backend.Mutation{Value: 7}, nil
	}))
	if err != nil || m.Committed || m.Value != 7 {
		t.Errorf("%+v %v", m, err)
	}
}

// TestAPanicUnderTheLockIsTheCallers: the writer goes on.
func TestAPanicUnderTheLockIsTheCallers(t *testing.T) {
	s := openStore(t, Options{})
	publishGraph(t, s)
	func() {
		defer func() {
			if p := recover(); p != "mine" {
				t.Errorf("%v", p)
			}
		}()
		_, _ = s.MutateRun(context.Background(), backend.System(), "a", newCheckpointID(), overtaken(t, s, func(*run.Document) (backend.Mutation, error) {
			panic("mine")
		}))
	}()
	insertRun(t, s, "b")
}
