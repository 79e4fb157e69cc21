package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// scenario is one small race: two threads over one store, and what must hold after both.
type scenario struct {
	// threads run at the same time; the explorer decides who makes the next step.
	threads [2]func()
	check   func()
}

// everyInterleaving runs a scenario in every order of the two threads' steps: those between the
// yield points of the store's operations, and those that a thread marks itself by calling
// step. Everything runs in a bubble, where whoever is not at a point is at rest before the
// next choice is made. It returns how many orders there were.
func everyInterleaving(t *testing.T, setup func(t *testing.T, step func(point string)) scenario) int {
	t.Helper()
	const bound = 20_000
	var path, width []int
	for n := 1; ; n++ {
		if n > bound {
			t.Fatalf("more than %d orders: make the scenario smaller", bound)
		}
		var trace []string
		synctest.Test(t, func(t *testing.T) {
			width = width[:0]
			path, trace = explore(t, path, &width, setup)
		})
		if t.Failed() {
			t.Fatalf("in this order:\n%s", strings.Join(trace, "\n"))
		}
		// The next path: the last choice that has an alternative left takes it.
		last := len(path) - 1
		for last >= 0 && path[last]+1 == width[last] {
			last--
		}
		if last < 0 {
			return n
		}
		path = append(path[:last:last], path[last]+1)
	}
}

// explore runs one order: the choices of path, then always the first thread that can go on.
func explore(t *testing.T, path []int, width *[]int, setup func(t *testing.T, step func(point string)) scenario) (taken []int, trace []string) {
	type parked struct {
		point string
		gone  chan struct{}
	}
	var mu sync.Mutex
	var arrived *parked
	exploring := false
	step := func(point string) {
		// Between the end of an operation and the beginning of the next a thread does nothing
		// that the other can see, and a read is one step.
		if strings.HasSuffix(point, ": done") || point == "inspect: begun" {
			return
		}
		mu.Lock()
		if !exploring {
			mu.Unlock()
			return
		}
		if arrived != nil {
			t.Errorf("two points of one thread at once: %s and %s", arrived.point, point)
		}
		p := &parked{point, make(chan struct{})}
		arrived = p
		mu.Unlock()
		<-p.gone
	}
	s := setup(t, step)

	mu.Lock()
	exploring = true
	mu.Unlock()
	var waiting [2]*parked
	var done [2]chan struct{}
	for i, f := range s.threads {
		done[i] = make(chan struct{})
		go func() {
			defer close(done[i])
			step("begin")
			f()
		}()
		synctest.Wait()
		waiting[i], arrived = arrived, nil
	}
	for k := 0; ; k++ {
		var live []int
		for i, p := range waiting {
			if p != nil {
				live = append(live, i)
			}
		}
		if len(live) == 0 {
			break
		}
		choice := 0
		if k < len(path) {
			choice = path[k]
		}
		taken, *width = append(taken, choice), append(*width, len(live))
		i := live[choice]
		trace = append(trace, fmt.Sprintf("%d: %s", i, waiting[i].point))
		close(waiting[i].gone)
		synctest.Wait()
		mu.Lock()
		waiting[i], arrived = arrived, nil
		mu.Unlock()
	}
	mu.Lock()
	exploring = false
	mu.Unlock()
	for i := range done {
		select {
		case <-done[i]:
		default:
			t.Errorf("thread %d is neither done nor at a point", i)
		}
	}
	s.check()
	return taken, trace
}

// asking is a graph in which a person is asked while a sibling works on.
const asking = `
id: asking
fields: {answer: {schema: {type: string}}}
nodes: {ask: {use: ask}, poll: {use: poll}}
edges: {a: {from: $start, to: ask}, b: {from: $start, to: poll}}
outputs: {answer: {from: answer}}
`

// told is what ask writes.
type told struct {
	Answer string `json:"answer,omitempty"`
}

// ask asks one question and completes when it is answered, into the field answer.
var ask = node.Of("ask", 1, func(ctx context.Context, _ none) (told, error) {
	_, ok, err := node.Answered[string](ctx, "")
	if err == nil && !ok {
		err = node.Ask(node.Question{ID: "q", Prompt: "which?", Field: "answer"})
	}
	return told{}, err
})

// draining is a thread that drains.
func draining(t *testing.T, e *lifecycle.Engine) func() {
	return func() {
		if _, err := e.Drain(context.Background(), lifecycle.DrainOptions{}); err != nil {
			t.Errorf("drain: %v", err)
		}
	}
}

func TestH16ResolveBetweenANodesLookAndTheParkIsNeverLost(t *testing.T) {
	orders := everyInterleaving(t, func(t *testing.T, step func(string)) scenario {
		store := memory.New(memory.Options{Yield: step})
		looks := 0
		poll := act("poll", func(context.Context) error {
			looks++
			if looks == 3 {
				return nil
			}
			step("poll: looked")
			return node.Snooze(time.Now().Add(time.Second))
		})
		e := newEngine(t, store, options{}, ask, poll)
		r := start(t, &e.Client, publish(t, &e.Client, asking), nil, lifecycle.StartOptions{ID: "r"})
		drain(t, e)
		time.Sleep(time.Second)
		return scenario{
			threads: [2]func(){draining(t, e), func() {
				if _, err := e.Resolve(context.Background(), r.ID, "q", "this one"); err != nil {
					t.Errorf("resolve: %v", err)
				}
			}},
			check: func() {
				time.Sleep(time.Second)
				drain(t, e)
				time.Sleep(time.Second)
				drain(t, e)
				got := inspect(t, &e.Client, r.ID)
				if got.Status != run.Done || string(got.Output) != `{"answer":"this one"}` {
					t.Errorf("the run is %s with output %s (wake %v)", got.Status, got.Output, got.Wake)
				}
			},
		}
	})
	t.Logf("%d orders", orders)
}

func TestH16ResolveBesideTheCommitThatWaitsForItIsAnsweredOrRefusedButNeverLost(t *testing.T) {
	orders := everyInterleaving(t, func(t *testing.T, step func(string)) scenario {
		e := newEngine(t, memory.New(memory.Options{Yield: step}), options{}, ask)
		r := start(t, &e.Client, publish(t, &e.Client, `
id: asking
fields: {answer: {schema: {type: string}}}
nodes: {ask: {use: ask}}
edges: {a: {from: $start, to: ask}}
outputs: {answer: {from: answer}}
`), nil, lifecycle.StartOptions{ID: "r"})
		var answered error
		return scenario{
			threads: [2]func(){draining(t, e), func() {
				_, answered = e.Resolve(context.Background(), r.ID, "q", "this one")
			}},
			check: func() {
				got := inspect(t, &e.Client, r.ID)
				switch {
				case answered == nil:
					drain(t, e)
					wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
				case !errors.Is(answered, run.ErrNoInterrupt):
					t.Errorf("resolve answers %v", answered)
				case got.Status != run.Waiting:
					t.Errorf("the run is %s", got.Status)
				}
			},
		}
	})
	t.Logf("%d orders", orders)
}

func TestH17CancelBesideCompleteOneWinsAndTheOtherHasADefinedAnswer(t *testing.T) {
	seen := map[run.Status]int{}
	orders := everyInterleaving(t, func(t *testing.T, step func(string)) scenario {
		e := newEngine(t, memory.New(memory.Options{Yield: step}), options{}, act("work", func(context.Context) error {
			step("work")
			return nil
		}))
		r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{ID: "r"})
		var cancelled error
		return scenario{
			threads: [2]func(){draining(t, e), func() {
				_, cancelled = e.Cancel(context.Background(), r.ID, "no more")
			}},
			check: func() {
				got := inspect(t, &e.Client, r.ID)
				seen[got.Status]++
				switch {
				case cancelled == nil && got.Status == run.Cancelled:
				case errors.Is(cancelled, run.ErrInactiveRun) && got.Status == run.Done:
				default:
					t.Errorf("cancel answers %v and the run is %s", cancelled, got.Status)
				}
				wantNothingLeft(t, got)
			},
		}
	})
	t.Logf("%d orders", orders)
	if seen[run.Done] == 0 || seen[run.Cancelled] == 0 {
		t.Errorf("outcomes %v: both must be possible", seen)
	}
}

func TestH19CancelBesideAParkLeavesNothing(t *testing.T) {
	orders := everyInterleaving(t, func(t *testing.T, step func(string)) scenario {
		poll := act("poll", func(context.Context) error {
			step("poll")
			return node.Snooze(time.Now().Add(time.Hour))
		})
		e := newEngine(t, memory.New(memory.Options{Yield: step}), options{}, ask, poll)
		r := start(t, &e.Client, publish(t, &e.Client, asking), nil, lifecycle.StartOptions{ID: "r"})
		return scenario{
			threads: [2]func(){draining(t, e), func() {
				if _, err := e.Cancel(context.Background(), r.ID, "no more"); err != nil {
					t.Errorf("cancel: %v", err)
				}
			}},
			check: func() {
				got := inspect(t, &e.Client, r.ID)
				wantStatus(t, got, run.Cancelled)
				wantNothingLeft(t, got)
			},
		}
	})
	t.Logf("%d orders", orders)
}

// wantNothingLeft fails the test when a finished run still holds something.
func wantNothingLeft(t *testing.T, r *lifecycle.Run) {
	t.Helper()
	if !r.Wake.IsZero() || !r.ClaimedAt.IsZero() || len(r.Timers) > 0 || len(r.OpenInterrupts()) > 0 ||
		len(r.Tasks) > 0 || len(r.Pending) > 0 || len(r.Writes) > 0 || !r.Poison.At.IsZero() {
		t.Errorf("a finished run still holds something: %+v", r)
	}
}
