package lifecycle_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// records is what a logger wrote.
type records struct {
	mu sync.Mutex
	b  strings.Builder
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *records) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

func (r *records) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestH29WhateverANodeDoesIsAStorableFailureOfThatAttempt(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(ctx context.Context) error
		code string
		says string
	}{
		{"an error", func(context.Context) error { return errors.New("no luck") }, run.CodeError, "no luck"},
		{"invalid UTF-8 in an error", func(context.Context) error { return errors.New("bad \xff byte") }, run.CodeError, "bad \uFFFD byte"},
		{"a panic with an error", func(context.Context) error { panic(errors.New("boom")) }, run.CodePanic, "boom"},
		{"a panic with a non-error", func(context.Context) error { panic(struct{ x int }{1}) }, run.CodePanic, "struct"},
		{"a panic with nil", func(context.Context) error { panic(nil) }, run.CodePanic, "panic"},
		{"an ended goroutine", func(context.Context) error { runtime.Goexit(); return nil }, run.CodePanic, "Goexit"},
		{"a nil dereference", func(context.Context) error { var r *lifecycle.Run; _ = r.Owner; return nil }, run.CodePanic, "nil pointer"},
		{"a result after the deadline", func(ctx context.Context) error { time.Sleep(time.Minute); return nil }, run.CodeTimeout, "deadline"},
		{"an error at the deadline", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, run.CodeTimeout, "deadline"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t, newMemory(nil), options{}, act("work", tt.do))
				ref := publish(t, &e.Client, `
id: timed
nodes: {work: {use: work, timeout: 58s}, work2: {use: work, timeout: 58s}}
edges: {in: {from: $start, to: work}, in2: {from: $start, to: work2}}
`)
				r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
				drain(t, e)
				got := inspect(t, &e.Client, r.ID)
				wantStatus(t, got, run.Failed)
				if got.Failure.Code != tt.code || got.Failure.Node != "work" || !strings.Contains(got.Failure.Message, tt.says) {
					t.Errorf("failure %s of node %q: %s; want %s saying %q", got.Failure.Code, got.Failure.Node, got.Failure.Message, tt.code, tt.says)
				}
				if err := got.Valid(); err != nil {
					t.Errorf("the document is not storable: %v", err)
				}
			})
		})
	}
}

// Nodes run on the goroutines that drive runs, so that ending one must cost only the attempt.
func TestNodesThatEndTheirGoroutineHoldUpNoOtherRun(t *testing.T) {
	for _, width := range []int{1, 3} {
		e := newEngine(t, newMemory(nil), options{Concurrency: width}, act("work", func(ctx context.Context) error {
			if call, _ := node.FromContext(ctx); call.Metadata["exits"] != "" {
				runtime.Goexit()
			}
			return nil
		}))
		ref := publish(t, &e.Client, single)
		var ids []string
		for i := range 40 {
			o := lifecycle.StartOptions{}
			if i%4 != 3 {
				o.Metadata = map[string]string{"exits": "yes"}
			}
			ids = append(ids, start(t, &e.Client, ref, nil, o).ID)
		}
		if d := drain(t, e); d.Commits != len(ids) {
			t.Errorf("%d wide: %d commits, want %d", width, d.Commits, len(ids))
		}
		for i, id := range ids {
			want := run.Failed
			if i%4 == 3 {
				want = run.Done
			}
			wantStatus(t, inspect(t, &e.Client, id), want)
		}
	}
}

func TestTimeoutEndsTheContextAtTheDeadlineWithItsCauseAndTheRetrySucceeds(t *testing.T) {
	for _, clock := range []string{"system", "virtual"} {
		t.Run(clock, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var virtual *lifecycle.VirtualClock
				cfg := options{}
				store := newMemory(nil)
				if clock == "virtual" {
					virtual = lifecycle.NewVirtualClock(epoch)
					cfg.Clock = virtual
					store = newMemory(virtual)
				}
				var mu sync.Mutex
				var causes []error
				var keys, attempts []string
				e := newEngine(t, store, cfg, act("work", func(ctx context.Context) error {
					call, _ := node.FromContext(ctx)
					deadline, ok := ctx.Deadline()
					mu.Lock()
					keys = append(keys, node.IdempotencyKey(ctx))
					attempts = append(attempts, call.AttemptID)
					n := len(keys)
					mu.Unlock()
					if left := call.Deadline.Sub(call.Now()); !ok || left != 30*time.Second || deadline.IsZero() {
						t.Errorf("the deadline is in %v (%v %v), want 30s", left, deadline, ok)
					}
					if n == 2 {
						return nil
					}
					<-ctx.Done()
					causes = append(causes, context.Cause(ctx))
					return errors.New("gave up")
				}))
				ref := publish(t, &e.Client, `
id: timed
nodes: {work: {use: work, timeout: 30s, retry: {max_attempts: 2}}}
edges: {in: {from: $start, to: work}, out: {from: work, to: $finish}}
`)
				r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
				over := background(t, e, t.Context())
				if virtual != nil {
					virtual.Advance(30 * time.Second)
				}
				if err := <-over; err != nil {
					t.Fatal(err)
				}
				got := inspect(t, &e.Client, r.ID)
				if len(got.Tasks) != 1 || got.Wake.IsZero() {
					t.Fatalf("the run is not parked for its retry: %+v", got.Document)
				}
				if virtual != nil {
					virtual.AdvanceTo(got.Wake)
				} else {
					time.Sleep(time.Until(got.Wake))
				}
				drain(t, e)
				wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
				var timeout *lifecycle.TimeoutError
				if len(causes) != 1 || !errors.As(causes[0], &timeout) || !errors.Is(causes[0], context.DeadlineExceeded) || timeout.Node != "work" {
					t.Errorf("causes %v, want one *TimeoutError of work", causes)
				}
				if len(keys) != 2 || keys[0] != keys[1] || attempts[0] == attempts[1] {
					t.Errorf("keys %v, attempts %v: want one key for both attempts", keys, attempts)
				}
			})
		})
	}
}

func TestNodeThatIgnoresItsDeadlineIsLeftBehindAndCannotCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var launches atomic.Int64
		e := newEngine(t, newMemory(nil), options{NodeGrace: 5 * time.Second}, act("work", func(ctx context.Context) error {
			if launches.Add(1) == 1 {
				return stubborn(ctx)
			}
			return nil
		}))
		ref := publish(t, &e.Client, `
id: timed
nodes: {work: {use: work, timeout: 30s, retry: {max_attempts: 2}}}
edges: {in: {from: $start, to: work}, out: {from: work, to: $finish}}
`)
		r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		began := time.Now()
		d := drain(t, e)
		if took := time.Since(began); took != 35*time.Second {
			t.Errorf("drained in %v, want timeout and grace, 35s", took)
		}
		time.Sleep(time.Until(d.Next))
		drain(t, e)
		done := inspect(t, &e.Client, r.ID)
		wantStatus(t, done, run.Done)
		time.Sleep(2 * time.Hour)
		if got := inspect(t, &e.Client, r.ID); got.Seq != done.Seq {
			t.Error("the late result changed the run")
		}
		if s := e.Stats(); s.StuckNodes != 1 || s.LateResults != 1 {
			t.Errorf("stats %+v, want one stuck node and one late result", s)
		}
	})
}

func TestMaxNodeTimeoutIsTheTimeoutOfNodesWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, newMemory(nil), options{MaxNodeTimeout: time.Minute}, act("work", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}))
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
		drain(t, e)
		if got := inspect(t, &e.Client, r.ID); got.Failure == nil || got.Failure.Code != run.CodeTimeout {
			t.Errorf("failure %+v, want a timeout", got.Failure)
		}
	})
}

func TestParallelNodesRunAtTheSameTimeAndAreSettledTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		e := newEngine(t, newMemory(nil), options{}, act("work", func(context.Context) error {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return nil
		}))
		ref := publish(t, &e.Client, `
id: fan
nodes: {a: {use: work}, b: {use: work}, c: {use: work}, last: {use: work}}
edges:
  a: {from: $start, to: a}
  b: {from: $start, to: b}
  c: {from: $start, to: c}
  join: {from: [a, b, c], to: last}
  out: {from: last, to: $finish}
`)
		r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		began := time.Now()
		d := drain(t, e)
		wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
		if took := time.Since(began); took != 2*time.Second || most.Load() != 3 || d.Commits != 2 {
			t.Errorf("took %v, %d at once, %+v: want 2s, 3 at once and 2 commits", took, most.Load(), d)
		}
	})
}
