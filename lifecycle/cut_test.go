package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

// TestADrainThatIsCutShortEndsItsNodesAtOnce: the run is released all the same, with its attempt, and
// the end of Cut alone ends nothing.
func TestADrainThatIsCutShortEndsItsNodesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(nil)
		var cause error
		e := newEngine(t, store, options{ShutdownTimeout: time.Hour}, act("work", func(ctx context.Context) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		}))
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		ctx, interrupt := context.WithCancel(t.Context())
		again, cut := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() {
			_, err := e.Drain(ctx, lifecycle.DrainOptions{Cut: again})
			over <- err
		}()
		synctest.Wait()
		began := time.Now()
		interrupt()
		time.Sleep(time.Minute)
		synctest.Wait()
		if cause != nil {
			t.Errorf("the node's context ended with %v while it may finish", cause)
		}
		cut()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("Drain answers %v, want the end of its context", err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the shutdown took %v, want to be cut short after a minute", took)
		}
		if !errors.Is(cause, lifecycle.ErrShutdown) {
			t.Errorf("the node's context ended with %v, want ErrShutdown", cause)
		}
		if got := inspect(t, &e.Client, r.ID); got.Status != run.Running || got.Attempts != 0 || got.Wake.IsZero() {
			t.Errorf("the run is %s, attempts %d, wake %v: want running, due, no attempt used up", got.Status, got.Attempts, got.Wake)
		}
	})
}
