package proptest

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

const (
	// linearCallers are the goroutines of one history, linearCalls the calls that each makes.
	linearCallers = 6
	linearCalls   = 16
	// linearTroubles bounds the troubles of one history: each call of unknown outcome doubles the orders among
	// which one is looked for.
	linearTroubles = 8
	// linearWait bounds the search for an order of the calls of one run.
	linearWait = time.Minute
)

// Linearizable lets goroutines call one store at once, without any turns but those of the machine:
// they claim, steal, commit, refresh, release, abandon, signal, recover, insert and read the same
// few runs. Of each run it looks for one order of the calls, each between its begin and its end,
// in which the kit's model gives the same answers and ends in the same state; in that order it holds
// A7, C1, C2, C5 and C6 against the answers. A reply that is lost, because nobody listens or because
// the call's context ended under way, leaves the outcome open: the call took effect at some
// time, or never; it may be sent again. With Hooks.Trouble, trouble is made between the calls, and
// calls that it meets may be of unknown outcome, claims too.
//
// A call that is not answered within Options.Timeout fails, and so does a history of which it
// cannot be decided in a minute whether there is such an order. A failing history is drawn, as a page
// for a browser, into Options.Artifacts. What the goroutines ask follows from the seed that a
// failure names; the order in which they come is the machine's.
func Linearizable(t T, open Opener, o Options) {
	t.Helper()
	o = o.withDefaults()
	seed := linearSeed()
	histories := max(1, o.Histories*setting("rapid.checks", 100)/100)
	calls, lost, troubles := 0, 0, 0
	for n := range histories {
		h := newConcurrency(t, open, o, seed+uint64(n))
		h.run()
		h.judge()
		calls, troubles = calls+len(h.calls), h.troubles()
		for _, c := range h.calls {
			if c.lost {
				lost++
			}
		}
		if t.Failed() {
			return
		}
	}
	o.log(t, fmt.Sprintf("%d histories of %d goroutines, %d calls, %d of them with a lost reply, %d troubles", histories, linearCallers, calls, lost, troubles))
}

// linearSeed is -rapid.seed, else another one each time.
func linearSeed() uint64 {
	if seed := setting("rapid.seed", 0); seed != 0 {
		return uint64(seed)
	}
	return rand.Uint64() >> 1
}

// setting is the number that a flag of rapid's holds.
func setting(name string, otherwise int) int {
	if f := flag.Lookup(name); f != nil {
		if n, err := strconv.ParseUint(f.Value.String(), 10, 63); err == nil {
			return int(n)
		}
	}
	return otherwise
}

// concurrency is one history of goroutines.
type concurrency struct {
	t       T
	options Options
	seed    uint64
	history *history
	initial *model
	makes   *Trouble
	made    atomic.Int64 // troubles
	now     atomic.Int64 // the virtual clock, since the start, in microseconds
	names   atomic.Int64
	moment  atomic.Int64

	mu    sync.Mutex
	calls []*operation
	// waiting are the calls under way.
	waiting [linearCallers]string
}

func newConcurrency(t T, open Opener, o Options, seed uint64) *concurrency {
	t.Helper()
	h := &concurrency{t: t, options: o, seed: seed, initial: newModel()}
	start := time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC)
	ref, raw := published("proof", 0)
	opened := open(t)
	h.makes = opened.Hooks.Trouble
	h.history = &history{
		store: opened.Store, start: start, runs: []string{"r1", "r2", "r3"},
		clock: func() time.Time { return start.Add(time.Duration(h.now.Load()) * time.Microsecond) },
		name:  func() int { return int(h.names.Add(1)) },
		owns: func(id string) backend.Owner {
			if id == "r2" {
				return acme
			}
			return tenantless
		},
	}
	h.history.refs = append(h.history.refs, ref)
	for _, owner := range []backend.Owner{tenantless, acme} {
		if err := h.history.store.SaveGraph(context.Background(), owner, ref, raw); err != nil {
			t.Fatalf("SaveGraph: %v", err)
		}
	}
	for i, id := range h.history.runs {
		in := opening(id, ref, start, checkpointID(1_000_000+i))
		if _, err := h.history.store.InsertRun(context.Background(), h.history.owns(id), in); err != nil {
			t.Fatalf("InsertRun of %s: %v", id, err)
		}
		h.initial.insert(h.history.owns(id), in)
	}
	return h
}

// run lets the callers call, to the end of every call.
func (h *concurrency) run() {
	h.t.Helper()
	var all sync.WaitGroup
	var panicked atomic.Pointer[string]
	for i := range linearCallers {
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					text := fmt.Sprintf("panic: %v\n%s", p, stack())
					panicked.Store(&text)
				}
			}()
			h.caller(i)
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	limit := time.NewTimer(h.options.Timeout)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		h.mu.Lock()
		defer h.mu.Unlock()
		h.t.Fatalf("T1: calls are without an answer after %v (seed %d): %s", h.options.Timeout, h.seed, strings.Join(h.waiting[:], "; "))
	}
	if text := panicked.Load(); text != nil {
		h.t.Fatalf("%s", *text)
	}
}

// caller makes the calls of one goroutine.
func (h *concurrency) caller(i int) {
	random := rand.New(rand.NewPCG(h.seed, uint64(i)))
	choose := func(n int, _ string) int { return random.IntN(n) }
	w := &caller{history: h.history, number: i}
	for range linearCalls {
		if random.IntN(4) == 0 {
			h.now.Add(among(choose, "time passes", time.Second, ttl, ttl+tick).Microseconds())
		}
		h.call(i, w.next(choose), random)
	}
}

// call makes one call. A claim's answer is always heard, unless there is trouble: without it any
// of the runs may have been taken.
func (h *concurrency) call(i int, c *operation, random *rand.Rand) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if c.may&mayClaim == 0 {
		switch random.IntN(8) {
		case 0:
			c.deaf = true
		case 1:
			stop := time.AfterFunc(time.Duration(random.IntN(500))*time.Microsecond, cancel)
			defer stop.Stop()
		}
	}
	h.mu.Lock()
	h.waiting[i] = c.text
	h.calls = append(h.calls, c)
	h.mu.Unlock()
	troubles := h.trouble(random)
	c.begun = h.moment.Add(1)
	c.ask(ctx)
	c.ended = h.moment.Add(1)
	c.lost = c.lost || c.deaf || isOfTwo(c.answer) && h.troubles() != troubles
	h.mu.Lock()
	h.waiting[i] = "nothing"
	h.mu.Unlock()
}

// trouble makes trouble now and then, and answers how many there were.
func (h *concurrency) trouble(random *rand.Rand) int {
	if h.makes != nil && random.IntN(8) == 0 && h.made.Add(1) <= linearTroubles {
		h.makes.Make(random.IntN)
	}
	return h.troubles()
}

func (h *concurrency) troubles() int {
	if h.makes == nil {
		return 0
	}
	return h.makes.Count()
}

// isOfTwo reports whether an answer may be that of a call which the store sent again by itself,
// the first of the two having taken effect unheard.
func isOfTwo(answer string) bool {
	return slices.Contains([]string{"replayed", "stale", "claim lost", "inactive run", "conflict"}, answer) || strings.HasPrefix(answer, "stale fence")
}

// settled is what the store shows when nothing changes any more. A call whose context ended may take effect while
// the store is read, and a picture of before and after is none that was ever there: two that are alike are whole.
func (h *concurrency) settled() picture {
	h.t.Helper()
	var last picture
	for n := range 1000 {
		shown, err := look(context.Background(), h.history.store, nil, whole)
		if err != nil {
			h.t.Fatalf("R4: reading the whole store: %v", err)
		}
		if n > 0 && samePicture(last, shown) {
			return shown
		}
		last = shown
	}
	h.t.Fatalf("R4: the store still changes after a thousand pictures, and nobody calls it (seed %d)", h.seed)
	return last
}

// judge holds the history of each run against the model.
func (h *concurrency) judge() {
	h.t.Helper()
	shown := h.settled()
	for _, c := range h.calls {
		if c.may&mayClaim != 0 && c.parts == nil && c.answer != "nothing" {
			h.t.Errorf("K1: a claim was answered: %s", c.answer)
		}
	}
	for _, id := range append(slices.Clone(h.history.runs), "late") {
		h.judgeRun(id, shown)
	}
}

func (h *concurrency) judgeRun(id string, shown picture) {
	h.t.Helper()
	initial := newModel()
	if r := h.initial.runs[id]; r != nil {
		initial.runs[id] = r
	}
	calls := about(h.calls, id)
	only := picture{Infos: map[string]backend.Info{}, Events: map[string][]run.Event{}}
	only.Runs = slices.DeleteFunc(slices.Clone(shown.Runs), func(s backend.Summary) bool { return s.Run != id })
	if i, there := shown.Infos[id]; there {
		only.Infos[id], only.Events[id] = i, shown.Events[id]
	}
	found, result, info := order(initial, calls, only, linearWait)
	if result == porcupine.Ok {
		if verdict := judgeOrder(initial, found); verdict != "" {
			h.t.Errorf("%s (seed %d)\n%s", verdict, h.seed, told(found))
		}
		return
	}
	what := "there is no order of the calls in which the model gives the same answers"
	if result == porcupine.Unknown {
		what = fmt.Sprintf("it was not decided within %v whether there is an order of the calls in which the model gives the same answers", linearWait)
	}
	slices.SortFunc(calls, func(a, b *operation) int { return int(a.begun - b.begun) })
	h.t.Errorf("T1: of %s %s (seed %d)\n%s%s%s", id, what, h.seed, told(calls), shows(only, h.history.start), h.drawn(initial, info))
}

// about lists the calls on one run, with what claims did to it.
func about(calls []*operation, id string) []*operation {
	var on []*operation
	for _, c := range calls {
		for _, part := range c.parts {
			if part.run == id {
				part.begun, part.ended = c.begun, c.ended
				on = append(on, part)
			}
		}
		if c.run == id && c.parts == nil {
			on = append(on, c)
		}
	}
	return on
}

// told is calls one line each, with the moments of begin and end.
func told(calls []*operation) string {
	var b strings.Builder
	for _, c := range calls {
		heard := c.answer
		if c.lost {
			heard = "(lost) " + heard
		}
		fmt.Fprintf(&b, "  [%3d, %3d] worker %d %s  ->  %s\n", c.begun, c.ended, c.worker, c.text, heard)
	}
	return b.String()
}

// drawn draws a history as a page and tells where it is.
func (h *concurrency) drawn(initial *model, info porcupine.LinearizationInfo) string {
	page, err := os.CreateTemp(h.options.Artifacts, "belay-history-*.html")
	if err == nil {
		err = porcupine.Visualize(linearizations(initial), info, page)
		if cannot := page.Close(); err == nil {
			err = cannot
		}
	}
	if err != nil {
		return fmt.Sprintf("the history could not be drawn: %v", err)
	}
	return "the history is drawn in " + page.Name()
}
