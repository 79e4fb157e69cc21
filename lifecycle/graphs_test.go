package lifecycle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// firstGraph is a store whose first read of a graph goes otherwise.
type firstGraph struct {
	backend.Store
	first func(ctx context.Context) error
}

func (s *firstGraph) FetchGraph(ctx context.Context, owner backend.Owner, ref graph.Ref) (value.Value, error) {
	if first := s.first; first != nil {
		s.first = nil
		if err := first(ctx); err != nil {
			return nil, err
		}
	}
	return s.Store.FetchGraph(ctx, owner, ref)
}

func TestACallerWhoLeavesWhileAGraphIsCompiledFailsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &firstGraph{Store: newMemory(nil), first: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		e := newEngine(t, store, options{}, ask)
		ref := publish(t, &e.Client, question)
		leaving, leave := context.WithCancel(t.Context())
		answers := make(chan error, 2)
		go func() {
			_, err := e.Start(leaving, ref, nil, lifecycle.StartOptions{})
			answers <- err
		}()
		synctest.Wait()
		go func() {
			_, err := e.Start(t.Context(), ref, nil, lifecycle.StartOptions{})
			answers <- err
		}()
		synctest.Wait()
		leave()
		if first, second := <-answers, <-answers; (first == nil) == (second == nil) {
			t.Errorf("%v and %v: want an error for the one who left, and none for the other", first, second)
		}
	})
}

func TestABackendThatPanicsWhileAGraphIsReadHoldsUpNoOtherRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &firstGraph{Store: newMemory(nil)}
		starter := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
		ref := publish(t, &starter.Client, single)
		a := start(t, &starter.Client, ref, nil, lifecycle.StartOptions{})
		b := start(t, &starter.Client, ref, nil, lifecycle.StartOptions{})

		e := newEngine(t, store, options{Concurrency: 1}, act("work", func(context.Context) error { return nil }))
		store.first = func(context.Context) error { panic("boom") }
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for range 2 {
			if _, err := e.Drain(ctx, lifecycle.DrainOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute) // what could not begin is due again
		}
		for _, id := range []string{a.ID, b.ID} {
			wantStatus(t, inspect(t, &e.Client, id), run.Done)
		}
	})
}

// missing is a store whose graphs are not there, while gone is set.
type missing struct {
	backend.Store
	gone  error
	reads int
}

func (s *missing) FetchGraph(ctx context.Context, owner backend.Owner, ref graph.Ref) (value.Value, error) {
	s.reads++
	if s.gone != nil {
		return nil, s.gone
	}
	return s.Store.FetchGraph(ctx, owner, ref)
}

func TestAMissingOrCorruptGraphIsReadOnceForManyRunsAndFoundSoonWhenItIsThere(t *testing.T) {
	for _, gone := range []error{backend.ErrNotFound, backend.ErrCorruptGraph} {
		t.Run(gone.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := newMemory(nil)
				work := act("work", func(context.Context) error { return nil })
				starter := newEngine(t, inner, options{}, work)
				ref := publish(t, &starter.Client, single)
				for range 50 {
					start(t, &starter.Client, ref, nil, lifecycle.StartOptions{})
				}
				store := &missing{Store: inner, gone: gone}
				e := newEngine(t, store, options{Concurrency: 1, AbandonBackoff: 6 * time.Second}, work)
				if d := drain(t, e); d.Abandons != 50 || store.reads != 1 {
					t.Errorf("%d abandons, %d reads, want 50 and 1", d.Abandons, store.reads)
				}
				if _, err := e.Start(t.Context(), ref, nil, lifecycle.StartOptions{}); err == nil || store.reads != 2 {
					t.Errorf("a start answers %v after %d reads: a caller is told what is so now", err, store.reads)
				}
				store.gone = nil
				time.Sleep(10 * time.Second)
				drain(t, e)
				page, err := e.List(t.Context(), backend.Query{Limit: 100, Statuses: []run.Status{run.Done}})
				if err != nil || len(page.Runs) != 50 {
					t.Errorf("%d runs are done, %v", len(page.Runs), err)
				}
			})
		})
	}
}
