package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// H7: what cannot run here is left unharmed for whoever can.
func TestH7ForeignWorkIsHandedBackUnharmedAndFinishedElsewhere(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	store := newMemory(clock)
	able := newEngine(t, store, options{Clock: clock}, act("work", func(context.Context) error { return nil }))
	var abandons []lifecycle.Abandon
	unable := newEngine(t, store, options{
		Clock: clock, AbandonBackoff: 10 * time.Second,
		Observers: whenAbandoned(func(a lifecycle.Abandon) { abandons = append(abandons, a) }),
	})
	r := start(t, &able.Client, publish(t, &able.Client, single), nil, lifecycle.StartOptions{})
	d := drain(t, unable)
	if d.Abandons != 1 || d.Claims != 1 || d.Commits != 0 {
		t.Errorf("%+v, want one abandon", d)
	}
	got := inspect(t, &able.Client, r.ID)
	if got.Attempts != 0 || got.Abandons != 1 || got.Seq != 1 {
		t.Errorf("attempts %d, abandons %d, seq %d", got.Attempts, got.Abandons, got.Seq)
	}
	if after := got.Wake.Sub(epoch); after < 10*time.Second || after >= 15*time.Second || !got.Wake.Equal(d.Next) {
		t.Errorf("due again after %v, Next %v: want the backoff and up to half of it", after, d.Next)
	}
	if len(abandons) != 1 || len(abandons[0].Reasons) != 1 || abandons[0].Reasons[0].Code != node.CodeUnknownType ||
		abandons[0].Reasons[0].Use != "work" || abandons[0].Run != r.ID || abandons[0].Disposition != claim.Rescheduled {
		t.Errorf("the reasons told: %+v", abandons)
	}
	clock.AdvanceTo(got.Wake)
	drain(t, able)
	wantStatus(t, inspect(t, &able.Client, r.ID), run.Done)
}

func TestAHandBackNamesEachReasonOnce(t *testing.T) {
	var log bytes.Buffer
	clock := lifecycle.NewVirtualClock(epoch)
	store := newMemory(clock)
	able := newEngine(t, store, options{Clock: clock}, act("work", func(context.Context) error { return nil }))
	unable := newEngine(t, store, options{Clock: clock, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	start(t, &able.Client, publish(t, &able.Client, "id: pair\nnodes: {a: {use: work}, b: {use: work}}\nedges: {a: {from: $start, to: a}, b: {from: $start, to: b}}\n"),
		nil, lifecycle.StartOptions{})
	drain(t, unable)
	if got := log.String(); !strings.Contains(got, "reason=unknown_node_type ") {
		t.Errorf("the log: %s", got)
	}
}

func TestAbandonedTogetherIsNotDueTogether(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	store := newMemory(clock)
	able := newEngine(t, store, options{Clock: clock}, act("work", func(context.Context) error { return nil }))
	ref := publish(t, &able.Client, single)
	for range 50 {
		start(t, &able.Client, ref, nil, lifecycle.StartOptions{})
	}
	drain(t, newEngine(t, store, options{Clock: clock}))
	page, err := able.List(t.Context(), backend.Query{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	wakes := map[time.Time]bool{}
	for _, r := range page.Runs {
		wakes[r.Wake] = true
	}
	if len(wakes) < 45 {
		t.Errorf("%d runs are due at only %d instants", len(page.Runs), len(wakes))
	}
}

func TestTimeoutAboveTheHostsMaximumIsHandedBackExponentiallyAndNeverPoisons(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	store := newMemory(clock)
	work := act("work", func(context.Context) error { return nil })
	narrow := newEngine(t, store, options{Clock: clock, MaxNodeTimeout: time.Minute, MaxAbandons: 1, AbandonBackoff: time.Second}, work)
	r := start(t, &narrow.Client, publish(t, &narrow.Client, `
id: slow
nodes: {work: {use: work, timeout: 2m}}
edges: {in: {from: $start, to: work}, out: {from: work, to: $finish}}
`), nil, lifecycle.StartOptions{})
	var last time.Duration
	for n := 1; n <= 15; n++ {
		drain(t, narrow)
		got := inspect(t, &narrow.Client, r.ID)
		if got.Abandons != n || !got.Poison.At.IsZero() || got.Attempts != 0 {
			t.Fatalf("after %d abandons: %+v", n, got)
		}
		delay := got.Wake.Sub(clock.Now())
		if delay < last || delay > 10*time.Minute {
			t.Errorf("abandon %d waits %v after %v", n, delay, last)
		}
		last = delay
		clock.AdvanceTo(got.Wake)
	}
	if last != 10*time.Minute {
		t.Errorf("the delay grew to %v, want its cap", last)
	}
	wide := newEngine(t, store, options{Clock: clock, MaxNodeTimeout: time.Hour}, work)
	drain(t, wide)
	wantStatus(t, inspect(t, &wide.Client, r.ID), run.Done)
}

// H4: one bad row is reported, keeps nobody waiting and is not tried in a tight loop.
func TestH4BadDocumentIsReportedAndBacksOffWhileOthersGoOn(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	store := &faulty{Store: newMemory(clock), features: func(f *backend.Features) {
		f.ClaimDocuments = damaged{f.ClaimDocuments, map[string]error{
			"a-corrupt": &backend.CorruptError{Run: "a-corrupt", What: "document", Err: run.ErrInvalidDocument},
			"b-newer":   &backend.CorruptError{Run: "b-newer", What: "document", Err: &run.FormatError{Format: 99, Reason: "newer"}},
		}}
	}}
	var log records
	codes := map[string]string{}
	e := newEngine(t, store, options{
		Clock: clock, Concurrency: 1, Logger: log.logger(),
		Observers: whenAbandoned(func(a lifecycle.Abandon) { codes[a.Run] = a.Reasons[0].Code }),
	}, act("work", func(context.Context) error { return nil }))
	ref := publish(t, &e.Client, single)
	for _, id := range []string{"a-corrupt", "b-newer", "c-good"} {
		start(t, &e.Client, ref, nil, lifecycle.StartOptions{ID: id})
	}
	d := drain(t, e)
	wantStatus(t, inspect(t, &e.Client, "c-good"), run.Done)
	if d.Claims != 3 || d.Abandons != 2 || d.Next.IsZero() {
		t.Errorf("%+v: want each claimed once and two handed back", d)
	}
	if codes["a-corrupt"] != lifecycle.CodeCorruptDocument || codes["b-newer"] != lifecycle.CodeNewerDocument {
		t.Errorf("codes %v", codes)
	}
	if !strings.Contains(log.String(), "a-corrupt") {
		t.Errorf("the corrupt run is not reported:\n%s", log.String())
	}
	for range 100 {
		clock.Advance(time.Minute)
		drain(t, e)
	}
	if got := inspect(t, &e.Client, "a-corrupt"); got.Poison.Reason != claim.MaxAbandonsExceeded {
		t.Errorf("poison %+v: what never gets better is for an operator in the end", got.Poison)
	}
}

// damaged claims documents of which some do not decode.
type damaged struct {
	inner backend.ClaimDocuments
	errs  map[string]error
}

func (c damaged) ClaimDueDocuments(ctx context.Context, p claim.Policy) (backend.ClaimedBatch, error) {
	batch, err := c.inner.ClaimDueDocuments(ctx, p)
	for i, l := range batch.Leases {
		if bad := c.errs[l.Run]; bad != nil {
			batch.Documents[i] = backend.ClaimedDocument{Err: bad}
		}
	}
	return batch, err
}

func TestWhatKeepsARunFromBeginningIsToldApart(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		code string // "": trouble of the moment
	}{
		{"the graph is damaged", backend.ErrCorruptGraph, lifecycle.CodeCorruptGraph},
		{"the graph is missing", backend.ErrNotFound, lifecycle.CodeMissingGraph},
		{"the graph does not compile here", &graph.IncompatibleError{}, lifecycle.CodeUndecodableGraph},
		{"the backend is away", &backend.InfrastructureError{Op: "graph", Nature: backend.Transient, Err: errInjected}, ""},
		{"the outcome is unknown", &backend.InfrastructureError{Op: "graph", Nature: backend.Unknown, Err: errInjected}, ""},
		{"something else fails", errors.New("odd"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broken := true
				store := &faulty{Store: newMemory(nil)}
				e := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
				r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
				store.fail = func(op string, after bool) error {
					if broken && op == "graph" && !after {
						return tt.err
					}
					return nil
				}
				var told []lifecycle.Abandon
				fresh := newEngine(t, store, options{Observers: whenAbandoned(func(a lifecycle.Abandon) { told = append(told, a) })},
					act("work", func(context.Context) error { return nil }))
				d := drain(t, fresh)
				got := inspect(t, &e.Client, r.ID)
				if got.Attempts != 0 || d.Claims != 1 || !got.Wake.After(time.Now()) || d.Next.IsZero() {
					t.Errorf("attempts %d, wake %v, %+v: want handed back once, for later, with no attempt used up", got.Attempts, got.Wake, d)
				}
				switch {
				case tt.code == "" && (len(told) != 0 || got.Abandons != 0):
					t.Errorf("told as an abandon: %+v", told)
				case tt.code != "" && (len(told) != 1 || told[0].Reasons[0].Code != tt.code || got.Abandons != 1):
					t.Errorf("told %+v, want code %s", told, tt.code)
				}
				broken = false
				time.Sleep(time.Until(got.Wake))
				drain(t, fresh)
				wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
			})
		})
	}
}

// H6: exact launch counts.
func TestH6CrashesPoisonAfterExactlyMaxAttemptsLaunches(t *testing.T) {
	for _, maxAttempts := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(maxAttempts), func(t *testing.T) {
			w := newWreck(t, maxAttempts, 1)
			for range 2 { // a recovered run has the whole budget again
				w.launches = 0
				for range maxAttempts + 3 {
					w.crash()
				}
				if w.launches != maxAttempts {
					t.Fatalf("%d launches, want %d", w.launches, maxAttempts)
				}
				_, err := w.healthy.Await(t.Context(), "r")
				var poisoned *lifecycle.PoisonedError
				if !errors.As(err, &poisoned) || poisoned.Poison.Reason != claim.MaxAttemptsExceeded || !errors.Is(err, lifecycle.ErrPoisoned) {
					t.Fatalf("Await answers %v", err)
				}
				freed, err := w.healthy.RetryPoisoned(t.Context(), "r")
				if err != nil || freed.Attempts != 0 || freed.Wake.IsZero() {
					t.Fatalf("freed: %+v, %v", freed, err)
				}
			}
			w.fails = false
			drain(t, w.healthy)
			wantStatus(t, inspect(t, &w.healthy.Client, "r"), run.Done)
		})
	}
}

func TestH6ErrorsUseTheirOwnBudgetAndGiveTheOtherBack(t *testing.T) {
	const crashes = 2 // in a row, below max attempts 3
	w := newWreck(t, crashes+1, 3)
	for failure := 1; failure <= 3; failure++ {
		for range crashes {
			w.crash()
		}
		if got := inspect(t, &w.healthy.Client, "r"); got.Attempts != crashes {
			t.Fatalf("attempts %d after %d crashes", got.Attempts, crashes)
		}
		d := drain(t, w.healthy)
		got := inspect(t, &w.healthy.Client, "r")
		if got.Attempts != 0 {
			t.Fatalf("attempts %d after a commit", got.Attempts)
		}
		if failure < 3 {
			w.clock.AdvanceTo(d.Next)
		}
	}
	got := inspect(t, &w.healthy.Client, "r")
	wantStatus(t, got, run.Failed)
	if want := 3 * (crashes + 1); w.launches != want {
		t.Errorf("%d launches, want %d", w.launches, want)
	}
}

func TestH6AbandonsPoisonAfterExactlyMaxAbandonsAndTouchNoAttempt(t *testing.T) {
	for _, maxAbandons := range []int{1, 2} {
		t.Run(fmt.Sprint(maxAbandons), func(t *testing.T) {
			w := newWreck(t, 3, 1)
			w.crash()
			unable := newEngine(t, w.store, options{Clock: w.clock, MaxAttempts: 3, MaxAbandons: maxAbandons})
			abandoned := 0
			for range maxAbandons + 3 {
				abandoned += drain(t, unable).Abandons
				w.clock.Advance(time.Hour)
			}
			got := inspect(t, &w.healthy.Client, "r")
			if abandoned != maxAbandons+1 || got.Abandons != maxAbandons || got.Poison.Reason != claim.MaxAbandonsExceeded {
				t.Errorf("handed back %d times, counted %d, poison %+v: want %d reschedules, then poison", abandoned, got.Abandons, got.Poison, maxAbandons)
			}
			if got.Attempts != 1 || w.launches != 1 {
				t.Errorf("attempts %d, launches %d: an abandon touches neither", got.Attempts, w.launches)
			}
		})
	}
}

func TestH6SnoozesUseUpNoBudget(t *testing.T) {
	n := 0
	e := newEngine(t, newMemory(nil), options{MaxAttempts: 1, MaxAbandons: 1}, act("work", func(ctx context.Context) error {
		call, _ := node.FromContext(ctx)
		if call.Attempt != 1 {
			t.Errorf("attempt %d", call.Attempt)
		}
		if n++; n <= snoozes {
			return node.Snooze(call.PlannedAt)
		}
		return nil
	}))
	r := start(t, &e.Client, publish(t, &e.Client, single), nil, lifecycle.StartOptions{})
	if _, err := e.Drain(t.Context(), lifecycle.DrainOptions{Parks: snoozes + 1}); err != nil {
		t.Fatal(err)
	}
	got := inspect(t, &e.Client, r.ID)
	wantStatus(t, got, run.Done)
	if n != snoozes+1 || got.Step != 1 {
		t.Errorf("%d launches, step %d", n, got.Step)
	}
}

// wreck is a run whose engines fall: each crash is an engine that claims and executes, and then
// gets nothing through to the backend any more.
type wreck struct {
	t        *testing.T
	clock    *lifecycle.VirtualClock
	store    backend.Store
	cfg      options
	work     node.Type
	healthy  *lifecycle.Engine
	launches int
	fails    bool
}

func newWreck(t *testing.T, maxAttempts, retries int) *wreck {
	w := &wreck{t: t, clock: lifecycle.NewVirtualClock(epoch), fails: true}
	w.store = newMemory(w.clock)
	w.cfg = options{Clock: w.clock, TTL: time.Minute, MaxAttempts: maxAttempts}
	w.work = act("work", func(context.Context) error {
		w.launches++
		if w.fails {
			return errors.New("no luck")
		}
		return nil
	})
	w.healthy = newEngine(t, w.store, w.cfg, w.work)
	start(t, &w.healthy.Client, publish(t, &w.healthy.Client, fmt.Sprintf(`
id: single
nodes: {work: {use: work, retry: {max_attempts: %d}}}
edges: {in: {from: $start, to: work}, out: {from: work, to: $finish}}
`, retries)), nil, lifecycle.StartOptions{ID: "r"})
	return w
}

func (w *wreck) crash() {
	dead := &faulty{Store: w.store, fail: func(op string, after bool) error {
		switch op {
		case "commit", "release", "abandon", "refresh":
			return backend.ErrClosed
		}
		return nil
	}}
	drain(w.t, newEngine(w.t, dead, w.cfg, w.work))
	w.clock.Advance(time.Minute + time.Microsecond)
}
