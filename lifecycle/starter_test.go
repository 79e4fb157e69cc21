package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

// gathering is a store that takes its time for inserts, and records who comes together.
type gathering struct {
	backend.Store
	takes  time.Duration
	answer func(ins []backend.Initialization, answers []backend.InsertResult) []backend.InsertResult

	mu     sync.Mutex
	single int
	groups []int
	owners []backend.Owner // of the groups
	ended  int             // calls whose context ended under way
}

func (g *gathering) Features() backend.Features {
	f := g.Store.Features()
	f.Batches = gatheringBatches{f.Batches, g}
	return f
}

// rest takes its time, less when nobody waits any more.
func (g *gathering) rest(ctx context.Context) error {
	select {
	case <-time.After(g.takes):
		return nil
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		g.ended++
		return ctx.Err()
	}
}

func (g *gathering) InsertRun(ctx context.Context, owner backend.Owner, in backend.Initialization) (backend.Inserted, error) {
	g.mu.Lock()
	g.single++
	g.mu.Unlock()
	if err := g.rest(ctx); err != nil {
		return backend.Inserted{}, err
	}
	return g.Store.InsertRun(ctx, owner, in)
}

type gatheringBatches struct {
	backend.Batches
	g *gathering
}

func (b gatheringBatches) InsertRuns(ctx context.Context, owner backend.Owner, ins []backend.Initialization) []backend.InsertResult {
	b.g.mu.Lock()
	b.g.groups, b.g.owners = append(b.g.groups, len(ins)), append(b.g.owners, owner)
	b.g.mu.Unlock()
	if err := b.g.rest(ctx); err != nil {
		return slices.Repeat([]backend.InsertResult{{Err: err}}, len(ins))
	}
	answers := b.Batches.InsertRuns(ctx, owner, ins)
	if b.g.answer != nil {
		answers = b.g.answer(ins, answers)
	}
	return answers
}

// startTogether starts runs at once, each by a caller of its own, and answers what each was told.
func startTogether(t *testing.T, n int, one func(i int) (*lifecycle.Run, error)) ([]*lifecycle.Run, []error) {
	t.Helper()
	runs, errs := make([]*lifecycle.Run, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { runs[i], errs[i] = one(i) })
	}
	all.Wait()
	return runs, errs
}

func TestStartsThatComeTogetherGoInGroupsAndALoneOneAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &gathering{Store: newMemory(nil), takes: time.Millisecond}
		e := newEngine(t, store, options{Concurrency: 300}, act("work", func(context.Context) error { return nil }))
		ref := publish(t, &e.Client, single)
		serve(t, e)
		synctest.Wait()
		began := time.Now()
		runs, errs := startTogether(t, 102, func(int) (*lifecycle.Run, error) {
			return e.Start(t.Context(), ref, nil, lifecycle.StartOptions{})
		})
		if took := time.Since(began); took != 2*time.Millisecond || store.single != 2 || !slices.Equal(store.groups, []int{100}) {
			t.Errorf("it took %v: %d alone and groups of %v, want two alone and the others together", took, store.single, store.groups)
		}
		seen := map[string]bool{}
		for i, r := range runs {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			if seen[r.ID] = true; r.ClaimedAt.IsZero() {
				t.Errorf("run %d was not started as claimed", i)
			}
			got, err := e.Await(t.Context(), r.ID)
			if err != nil {
				t.Fatal(err)
			}
			wantStatus(t, got, run.Done)
		}
		if s := e.Stats(); len(seen) != 102 || s.Claims != 102 || s.LostClaims+s.Abandons+s.Releases != 0 {
			t.Errorf("%d runs, %+v", len(seen), s)
		}
		began = time.Now()
		start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		if took := time.Since(began); took != time.Millisecond || store.single != 3 {
			t.Errorf("a start that is alone took %v, %d went alone", took, store.single)
		}
	})
}

func TestAGroupOfStartsIsOfOneOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &gathering{Store: newMemory(nil), takes: time.Millisecond}
		e := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
		clients := []*lifecycle.Client{&e.Client, e.For("acme"), e.For("bolt")}
		for _, c := range clients {
			publish(t, c, single)
		}
		ref := publish(t, &e.Client, single)
		runs, errs := startTogether(t, 62, func(i int) (*lifecycle.Run, error) {
			return clients[i%3].Start(t.Context(), ref, nil, lifecycle.StartOptions{})
		})
		for i := range runs {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			inspect(t, clients[i%3], runs[i].ID)
			if _, err := clients[(i+1)%3].Inspect(t.Context(), runs[i].ID); !errors.Is(err, backend.ErrNotFound) {
				t.Errorf("another owner sees the run: %v", err)
			}
		}
		if !slices.Equal(slices.Sorted(slices.Values(store.groups)), []int{20, 20, 20}) {
			t.Errorf("groups of %v by %v, want one for each owner", store.groups, store.owners)
		}
	})
}

// What others could have to wait for goes alone: somebody's open transaction may hold an id or a key.
func TestStartsWithAnIDOrAKeyGoAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &gathering{Store: newMemory(nil), takes: time.Millisecond}
		e := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
		ref := publish(t, &e.Client, single)
		began := time.Now()
		_, errs := startTogether(t, 40, func(i int) (*lifecycle.Run, error) {
			if i%2 == 0 {
				return e.Start(t.Context(), ref, nil, lifecycle.StartOptions{ID: fmt.Sprint(i)})
			}
			return e.Start(t.Context(), ref, nil, lifecycle.StartOptions{Key: fmt.Sprint(i)})
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != time.Millisecond || store.single != 40 || len(store.groups) > 0 {
			t.Errorf("it took %v: %d alone and groups of %v", took, store.single, store.groups)
		}
	})
}

func TestWhateverSpoilsAGroupItsMembersStartAlone(t *testing.T) {
	for name, answer := range map[string]func([]backend.Initialization, []backend.InsertResult) []backend.InsertResult{
		"a panic":         func([]backend.Initialization, []backend.InsertResult) []backend.InsertResult { panic("no") },
		"too few answers": func(_ []backend.Initialization, a []backend.InsertResult) []backend.InsertResult { return a[1:] },
		"lost answers": func(_ []backend.Initialization, a []backend.InsertResult) []backend.InsertResult {
			return slices.Repeat([]backend.InsertResult{{Err: unknown("insert runs")}}, len(a))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &gathering{Store: newMemory(nil), takes: time.Millisecond, answer: answer}
				e := newEngine(t, store, options{Concurrency: 100}, act("work", func(context.Context) error { return nil }))
				ref := publish(t, &e.Client, single)
				runs, errs := startTogether(t, 50, func(int) (*lifecycle.Run, error) {
					return e.Start(t.Context(), ref, nil, lifecycle.StartOptions{})
				})
				if err := errors.Join(errs...); err != nil || len(store.groups) == 0 {
					t.Fatalf("%v, groups of %v", err, store.groups)
				}
				if d := drain(t, e); d.Commits != 50 {
					t.Errorf("%+v", d)
				}
				for _, r := range runs {
					wantStatus(t, inspect(t, &e.Client, r.ID), run.Done)
				}
			})
		})
	}
}

func TestAnAnswerOfAGroupIsTheMembersOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := ""
		store := &gathering{Store: newMemory(nil), takes: time.Millisecond}
		store.answer = func(ins []backend.Initialization, a []backend.InsertResult) []backend.InsertResult {
			refused = ins[3].Document.ID
			a[3] = backend.InsertResult{Err: fmt.Errorf("%w: run %s", backend.ErrConflict, refused)}
			return a
		}
		e := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
		ref := publish(t, &e.Client, single)
		_, errs := startTogether(t, 20, func(int) (*lifecycle.Run, error) {
			return e.Start(t.Context(), ref, nil, lifecycle.StartOptions{})
		})
		errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
		if len(errs) != 1 || !errors.Is(errs[0], backend.ErrConflict) || store.single != 2 {
			t.Errorf("refused %s, answered %v, %d went alone", refused, errs, store.single)
		}
	})
}

// A caller waits no longer than its context, and its leaving harms nobody: not its group, and not
// those behind it.
func TestACallerThatLeavesLeavesItsGroupAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &gathering{Store: newMemory(nil), takes: 10 * time.Millisecond}
		e := newEngine(t, store, options{Concurrency: 100}, act("work", func(context.Context) error { return nil }))
		ref := publish(t, &e.Client, single)
		serve(t, e)
		synctest.Wait()
		// Two go alone and are answered at 10 ms; the others wait until then and go together, until 20 ms.
		took := make([]time.Duration, 30)
		began := time.Now()
		runs, errs := startTogether(t, 30, func(i int) (*lifecycle.Run, error) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.Sleep(time.Duration(i) * time.Microsecond)
			switch i {
			case 2: // the first of the group
				time.AfterFunc(15*time.Millisecond, cancel)
			case 3: // still in the queue
				time.AfterFunc(5*time.Millisecond, cancel)
			}
			defer func() { took[i] = time.Since(began).Truncate(time.Millisecond) }()
			return e.Start(ctx, ref, nil, lifecycle.StartOptions{})
		})
		for i, err := range errs {
			want, ends := 20*time.Millisecond, error(nil)
			switch i {
			case 0, 1:
				want = 10 * time.Millisecond
			case 2:
				want, ends = 15*time.Millisecond, context.Canceled
			case 3:
				want, ends = 5*time.Millisecond, context.Canceled
			}
			if took[i] != want || !errors.Is(err, ends) || err != nil && ends == nil {
				t.Errorf("start %d: %v after %v, want %v after %v", i, err, took[i], ends, want)
			}
			if err == nil {
				if _, err := e.Await(t.Context(), runs[i].ID); err != nil {
					t.Error(err)
				}
			}
		}
		if page, err := e.List(t.Context(), backend.Query{Limit: 100}); err != nil || len(page.Runs) != 29 || !slices.Equal(store.groups, []int{27}) {
			t.Errorf("%d runs, %v, groups of %v: want all but the one that left before it was sent", len(page.Runs), err, store.groups)
		}
		if h := e.Health(); h.Held != 0 || store.ended != 0 {
			t.Errorf("%d slots are held, %d calls were cut", h.Held, store.ended)
		}
		again := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		if got, err := e.Await(t.Context(), again.ID); err != nil || got.Status != run.Done {
			t.Errorf("the next start: %v", err)
		}
	})
}

func TestAGroupEndsWhenAllOfItsCallersHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &gathering{Store: newMemory(nil), takes: time.Hour}
		e := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
		ref := publish(t, &e.Client, single)
		began := time.Now()
		_, errs := startTogether(t, 10, func(i int) (*lifecycle.Run, error) {
			patience := time.Second
			if i < 2 {
				patience = 500 * time.Millisecond // frees the lanes for the group of the others
			}
			time.Sleep(time.Duration(i) * time.Microsecond)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			return e.Start(ctx, ref, nil, lifecycle.StartOptions{})
		})
		for i, err := range errs {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("start %d: %v", i, err)
			}
		}
		if took := time.Since(began).Truncate(time.Millisecond); took != time.Second {
			t.Errorf("the last was answered after %v", took)
		}
		synctest.Wait()
		store.mu.Lock()
		defer store.mu.Unlock()
		if store.ended != 3 || !slices.Equal(store.groups, []int{8}) {
			t.Errorf("%d calls ended with their callers, groups of %v", store.ended, store.groups)
		}
	})
}

// Whatever is drawn, each caller has an answer of its own in time, and what is answered as stored is
// stored once.
func TestGroupingChangesNoAnswerOfAStart(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type caller struct{ at, patience, owner int }
		callers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) caller {
			return caller{
				at:       rapid.IntRange(0, 40).Draw(t, "at"),
				patience: rapid.SampledFrom([]int{3, 7, 12, 1000}).Draw(t, "patience"),
				owner:    rapid.IntRange(0, 2).Draw(t, "owner"),
			}
		}), 1, 30).Draw(rt, "callers")
		synctest.Test(t, func(t *testing.T) {
			store := &gathering{Store: newMemory(nil), takes: 5 * time.Millisecond}
			e := newEngine(t, store, options{Concurrency: 5}, act("work", func(context.Context) error { time.Sleep(20 * time.Millisecond); return nil }))
			clients := []*lifecycle.Client{&e.Client, e.For("acme"), e.For("bolt")}
			for _, c := range clients {
				publish(t, c, single)
			}
			ref := publish(t, &e.Client, single)
			serve(t, e)
			synctest.Wait()
			runs, errs := startTogether(t, len(callers), func(i int) (*lifecycle.Run, error) {
				time.Sleep(time.Duration(callers[i].at)*time.Millisecond + time.Duration(i)*time.Microsecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(callers[i].patience)*time.Millisecond)
				defer cancel()
				began := time.Now()
				r, err := clients[callers[i].owner].Start(ctx, ref, nil, lifecycle.StartOptions{})
				if took := time.Since(began).Milliseconds(); took > int64(callers[i].patience) {
					rt.Errorf("caller %d waited %d ms, its context ended after %d", i, took, callers[i].patience)
				}
				return r, err
			})
			ids := map[string]bool{}
			for i, r := range runs {
				switch {
				case errs[i] == nil:
					ids[r.ID] = true
					got, err := clients[callers[i].owner].Await(t.Context(), r.ID)
					if err != nil || got.Status != run.Done {
						rt.Errorf("caller %d: %v, %v", i, got, err)
					}
				case !errors.Is(errs[i], context.DeadlineExceeded) || callers[i].patience == 1000:
					rt.Errorf("caller %d: %v", i, errs[i])
				}
			}
			if n := len(runs) - len(slices.DeleteFunc(errs, func(err error) bool { return err == nil })); len(ids) != n {
				rt.Errorf("%d ids for %d starts", len(ids), n)
			}
			time.Sleep(5 * time.Minute) // whatever was stored for a caller that had left runs one TTL later
			if h := e.Health(); h.Held != 0 {
				rt.Errorf("%d slots are held", h.Held)
			}
			stored := 0
			for _, c := range clients {
				page, err := c.List(t.Context(), backend.Query{Limit: 100})
				if err != nil {
					rt.Error(err)
				}
				for _, r := range page.Runs {
					if stored++; r.Status != run.Done {
						rt.Errorf("run %s is %s", r.Run, r.Status)
					}
				}
			}
			if stored < len(ids) || stored > len(callers) {
				rt.Errorf("%d runs are stored, %d answered of %d callers", stored, len(ids), len(callers))
			}
		})
	})
}
