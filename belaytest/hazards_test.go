package belaytest_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/belaytest"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/lifecycle/otel"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// H29: panics with what is no error, odd errors and odd results are failures of that attempt, which are
// stored and shown; the second attempt goes on as if nothing had been.
func TestH29PanicsAndOddErrorsAreFailuresOfTheAttempt(t *testing.T) {
	const once = `
id: once
nodes: {n: {use: odd, retry: {max_attempts: 2, backoff: {initial: 1s}}}}
edges: {in: {from: $start, to: n}, out: {from: n, to: $finish}}
`
	for _, tt := range []struct {
		name string
		odd  func() error
		code string
		says string
	}{
		{"a panic with an error", func() error { panic(errors.New("broken")) }, run.CodePanic, "broken"},
		{"a panic with a number", func() error { panic(42) }, run.CodePanic, "42"},
		{"a panic with a struct", func() error { panic(struct{ secret string }{"s3cr3t"}) }, run.CodePanic, "a value of type struct"},
		{"a panic with nil", func() error { panic(nil) }, run.CodePanic, "nil"},
		{"a nil map", func() error { nilMap()["a"] = 1; return nil }, run.CodePanic, "nil map"},
		{"an error of invalid UTF-8", func() error { return errors.New("bad \xff byte\x00") }, run.CodeError, "bad \uFFFD byte"},
		{"an error without a text", func() error { return errors.New("") }, run.CodeError, "without a text"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			attempts := 0
			e := belaytest.New(t, belay.Config{Nodes: node.NewRegistry().Add(node.Of("odd", 1, func(context.Context, none) (none, error) {
				if attempts++; attempts == 1 {
					return none{}, tt.odd()
				}
				return none{}, nil
			}))})
			r := e.MustStart(e.MustPublishYAML(once), nil)
			e.Rest(r.ID)
			e.WantDone(r.ID, none{})
			e.WantStory(r.ID, "run_initialized", "node_failed n: "+tt.code, "node_completed n", "run_completed")
			for _, event := range e.MustEvents(r.ID) {
				if f := event.Failure; f != nil && (!strings.Contains(f.Message, tt.says) || strings.Contains(f.Message, "s3cr3t")) {
					t.Errorf("the failure says %q, want %q", f.Message, tt.says)
				}
			}
		})
	}
	t.Run("nil results complete", func(t *testing.T) {
		e := belaytest.New(t, belay.Config{Nodes: node.NewRegistry().Add(node.Raw(graph.NodeType{Name: "odd", Version: 1}, func(node.Site) (node.Func, error) {
			return func(context.Context, *node.Call) (map[string]value.Value, error) { return nil, nil }, nil
		}))})
		r := e.MustStart(e.MustPublishYAML(once), nil)
		e.Rest(r.ID)
		e.WantDone(r.ID, none{})
	})
	t.Run("a result after the deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			attempts := 0
			e := belaytest.New(t, belay.Config{Clock: lifecycle.SystemClock(), Nodes: node.NewRegistry().Add(node.Of("odd", 1, func(ctx context.Context, _ none) (none, error) {
				if attempts++; attempts == 1 {
					<-ctx.Done()
				}
				return none{}, nil // as if in time
			}, node.Timeout(time.Minute)))})
			e.Serve()
			began := time.Now()
			r, err := e.Await(t.Context(), e.MustStart(e.MustPublishYAML(once), nil).ID)
			if err != nil || time.Since(began) < time.Minute {
				t.Fatalf("%v after %v", err, time.Since(began))
			}
			e.WantStory(r.ID, "run_initialized", "node_failed n: "+run.CodeTimeout, "node_completed n", "run_completed")
		})
	})
}

func nilMap() map[string]int { return nil }

// host is a service with a SQLite file of its own, in which runs are kept too.
func host(t *testing.T, nodes *node.Registry) (*sqlite.Store, *sql.DB, *belay.Engine) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "data", "host.db"), sqlite.Options{CreateDirectory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	db, err := sql.Open("sqlite", store.HostDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	engine, err := belay.New(belay.Config{Backend: store, Nodes: nodes, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return store, db, engine
}

// H32: a test starts runs inside a transaction of the host's, looks at what they would do, and rolls back:
// no run, no wake and no goroutine is left over.
func TestH32ATestWorksInAHostTransactionAndLeavesNothing(t *testing.T) {
	store, db, engine := host(t, orderNodes())
	doc, err := graph.ParseYAML([]byte(order))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := engine.Publish(t.Context(), doc)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	bound := store.WithTx(tx)
	r, err := engine.StartIn(t.Context(), bound, ref, payment{7}, belay.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	belaytest.WantRuns(t, bound, 1)

	e := belaytest.New(t, belay.Config{Nodes: orderNodes()})
	if adopted := e.Adopt(bound, r.ID); adopted.Seq != 1 || adopted.Graph != r.Graph {
		t.Errorf("adopted %+v", adopted)
	}
	e.Rest(r.ID)
	e.MustResolve(r.ID, true)
	e.Rest(r.ID)
	e.WantDone(r.ID, map[string]any{"receipt": "paid 7", "approved": true})
	if during(t, func(fake testing.TB) { belaytest.New(fake, belay.Config{Nodes: orderNodes()}).Adopt(e.Store, r.ID) }) == "" {
		t.Error("a run that has moved on was adopted")
	}

	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	belaytest.WantRuns(t, store, 0)
	if d, err := engine.Drain(t.Context(), belay.DrainOptions{}); err != nil || d.Claims != 0 {
		t.Errorf("after the rollback: %+v, %v", d, err)
	}
}

// H33: a run that crosses a crash and two engines is one trace, which its nodes see; logs carry run, node
// and sequence; neither payloads nor tokens are in any of it.
func TestH33ARunAcrossACrashIsOneTraceAndLogsNameIt(t *testing.T) {
	const secret = "s3cr3t"
	telemetry, err := otel.New(otel.Options{TracerProvider: nooptrace.NewTracerProvider(), MeterProvider: noop.NewMeterProvider()})
	if err != nil {
		t.Fatal(err)
	}
	var log logged
	var seen []trace.TraceID
	nodes := node.NewRegistry().Add(node.Of("work", 1, func(ctx context.Context, in struct {
		Card string `json:"card"`
	},
	) (receipt, error) {
		seen = append(seen, trace.SpanContextFromContext(ctx).TraceID())
		if len(seen) == 1 {
			return receipt{}, errors.New("no answer")
		}
		return receipt{in.Card}, nil
	}))
	first := belaytest.New(t, belay.Config{Nodes: nodes, Observers: []lifecycle.Observer{telemetry}, Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	second := belaytest.New(t, belay.Config{
		Backend: first.Store, Clock: first.Clock, // another process on the same database
		Nodes: nodes, Observers: []lifecycle.Observer{telemetry}, Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	ref := first.MustPublishYAML(`
id: order
inputs: {card: {schema: {type: string}, required: true}}
fields: {receipt: {schema: {type: string}}}
nodes: {work: {use: work, retry: {max_attempts: 2, backoff: {initial: 1s}}}}
edges: {in: {from: $start, to: work}, out: {from: work, to: $finish}}
outputs: {receipt: {from: receipt}}
`)
	caller := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{7}, SpanID: trace.SpanID{7}, TraceFlags: trace.FlagsSampled})
	r, err := first.Start(trace.ContextWithSpanContext(t.Context(), caller), ref, map[string]string{"card": secret}, belay.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first.Clock.AdvanceTo(first.Quiet().Next)
	belaytest.Crash(t, first.Store, 1) // the first process claims it again, and falls
	second.Rest(r.ID)
	second.WantDone(r.ID, receipt{secret})
	if !slices.Equal(seen, []trace.TraceID{{7}, {7}}) {
		t.Errorf("the nodes worked in the traces %v, want that of the caller twice", seen)
	}

	commits := 0
	for line := range strings.Lines(log.String()) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if record["msg"] == "belay: committed" {
			commits++
			if record["run"] != r.ID || record["seq"] != float64(commits+1) {
				t.Errorf("a record does not say which commit it is about: %s", line)
			}
		}
	}
	if commits != 2 || strings.Contains(log.String(), secret) {
		t.Errorf("the log tells of %d commits, or shows the payload:\n%s", commits, log.String())
	}
}

// logged keeps log records.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// sleeper sleeps for a day.
const sleeper = `
id: sleeper
nodes: {nap: {use: sleep, config: {for: 24h}}}
edges: {in: {from: $start, to: nap}, out: {from: nap, to: $finish}}
`

// H34: a sleep of a day ends at once, on a clock that the test moves.
func TestH34ADaysSleepEndsAtOnceOnAVirtualClock(t *testing.T) {
	e := belaytest.New(t, belay.Config{Nodes: std.Register(node.NewRegistry())})
	r := e.MustStart(e.MustPublishYAML(sleeper), nil)
	began := time.Now()
	e.Rest(r.ID)
	e.WantDone(r.ID, none{})
	if passed := e.Clock.Now().Sub(belaytest.Epoch); passed != 24*time.Hour {
		t.Errorf("%v passed on the clock", passed)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// H34: and in a bubble of testing/synctest, with an engine that serves as in production and code
// under test that waits by itself.
func TestH34ADaysSleepEndsAtOnceInASynctestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := belaytest.New(t, belay.Config{Clock: lifecycle.SystemClock(), Nodes: std.Register(node.NewRegistry())})
		e.Serve()
		ref := e.MustPublishYAML(sleeper)
		began := time.Now()
		over := make(chan string)
		go func() {
			r, err := e.Await(t.Context(), e.MustStart(ref, nil).ID)
			over <- fmt.Sprint(r.Status, err)
		}()
		time.Sleep(23 * time.Hour)
		synctest.Wait()
		select {
		case status := <-over:
			t.Fatalf("after 23 hours: %s", status)
		default:
		}
		if status := <-over; status != "done<nil>" {
			t.Errorf("the run is %s", status)
		}
		if passed := time.Since(began); passed < 24*time.Hour || passed > 24*time.Hour+time.Minute {
			t.Errorf("%v passed", passed)
		}
	})
}
