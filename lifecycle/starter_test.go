package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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
	g.mu.Lock()
	takes := g.takes
	g.mu.Unlock()
	select {
	case <-time.After(takes):
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

// callers starts runs at once, each by a caller of its own, and answers what each was told.
func callers(t *testing.T, n int, one func(i int) (*lifecycle.Run, error)) ([]*lifecycle.Run, []error) {
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
		runs, errs := callers(t, 101, func(int) (*lifecycle.Run, error) {
			return e.Start(t.Context(), ref, nil, lifecycle.StartOptions{})
		})
		if took := time.Since(began); took != 2*time.Millisecond || store.single != 1 || !slices.Equal(store.groups, []int{100}) {
			t.Errorf("it took %v: %d alone and groups of %v, want one alone and the others together", took, store.single, store.groups)
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
		if s := e.Stats(); len(seen) != 101 || s.Claims != 101 || s.LostClaims+s.Abandons+s.Releases != 0 {
			t.Errorf("%d runs, %+v", len(seen), s)
		}
		began = time.Now()
		start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		if took := time.Since(began); took != time.Millisecond || store.single != 2 {
			t.Errorf("a start that is alone took %v, %d went alone", took, store.single)
		}
	})
}

func TestAGroupOfStartsIsOfOneOwnerAndNoOwnerWaitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &gathering{Store: newMemory(nil), takes: time.Millisecond}
		e := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
		const owners, each = 30, 5
		clients := make([]*lifecycle.Client, owners)
		for i := range clients {
			clients[i] = e.For(fmt.Sprint("tenant-", i))
			publish(t, clients[i], single)
		}
		ref := publish(t, clients[0], single)
		began := time.Now()
		runs, errs := callers(t, owners*each, func(i int) (*lifecycle.Run, error) {
			return clients[i%owners].Start(t.Context(), ref, nil, lifecycle.StartOptions{})
		})
		if took := time.Since(began); took != 2*time.Millisecond || store.single != owners {
			t.Errorf("it took %v, %d alone and groups of %v, want one alone of each owner and then its others", took, store.single, store.groups)
		}
		for i := range runs {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			inspect(t, clients[i%owners], runs[i].ID)
			if _, err := clients[(i+1)%owners].Inspect(t.Context(), runs[i].ID); !errors.Is(err, backend.ErrNotFound) {
				t.Errorf("another owner sees the run: %v", err)
			}
		}
		if !slices.Equal(store.groups, slices.Repeat([]int{each - 1}, owners)) {
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
		_, errs := callers(t, 40, func(i int) (*lifecycle.Run, error) {
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
		"a panic": func([]backend.Initialization, []backend.InsertResult) []backend.InsertResult { panic("no") },
		"its goroutine's end": func([]backend.Initialization, []backend.InsertResult) []backend.InsertResult {
			runtime.Goexit()
			return nil
		},
		"too few answers": func(_ []backend.Initialization, a []backend.InsertResult) []backend.InsertResult { return a[1:] },
		"too late and too few answers": func([]backend.Initialization, []backend.InsertResult) []backend.InsertResult {
			time.Sleep(5 * time.Second)
			return nil
		},
		"lost answers": func(_ []backend.Initialization, a []backend.InsertResult) []backend.InsertResult {
			return slices.Repeat([]backend.InsertResult{{Err: unknown("insert runs")}}, len(a))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &gathering{Store: newMemory(nil), takes: time.Millisecond, answer: answer}
				e := newEngine(t, store, options{Concurrency: 100}, act("work", func(context.Context) error { return nil }))
				ref := publish(t, &e.Client, single)
				runs, errs := callers(t, 50, func(int) (*lifecycle.Run, error) {
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
				began := time.Now() // no lane is lost
				start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
				if took := time.Since(began); took != time.Millisecond {
					t.Errorf("a start afterwards took %v", took)
				}
			})
		})
	}
}

// What a member of a group is refused for it hears from a call of its own.
func TestARefusedMemberOfAGroupIsAskedForAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &gathering{Store: newMemory(nil), takes: time.Millisecond}
		store.answer = func(ins []backend.Initialization, a []backend.InsertResult) []backend.InsertResult {
			a[3] = backend.InsertResult{Err: backend.ErrConflict}
			return a
		}
		e := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
		ref := publish(t, &e.Client, single)
		_, errs := callers(t, 20, func(int) (*lifecycle.Run, error) {
			return e.Start(t.Context(), ref, nil, lifecycle.StartOptions{})
		})
		if err := errors.Join(errs...); err != nil || store.single != 2 {
			t.Errorf("%v, %d went alone", err, store.single)
		}
	})
}

// Calls that hang hold up nobody for longer than a moment, however many they are.
func TestStartsThatHangDoNotHoldUpOthers(t *testing.T) {
	for _, hung := range []int{1, 2, 10} {
		synctest.Test(t, func(t *testing.T) {
			store := &gathering{Store: newMemory(nil), takes: time.Hour}
			e := newEngine(t, store, options{Concurrency: 100}, act("work", func(context.Context) error { return nil }))
			ref := publish(t, &e.Client, single)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
			defer cancel()
			var all sync.WaitGroup
			for range hung {
				all.Go(func() {
					if _, err := e.Start(ctx, ref, nil, lifecycle.StartOptions{}); !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				})
			}
			time.Sleep(time.Second)
			store.mu.Lock()
			store.takes = time.Millisecond
			store.mu.Unlock()
			longest := time.Duration(0)
			for range 50 {
				began := time.Now()
				start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
				longest = max(longest, time.Since(began))
			}
			if longest > 300*time.Millisecond {
				t.Errorf("%d calls hang, and another start took %v", hung, longest)
			}
			all.Wait()
		})
	}
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
		// One goes alone and is answered at 10 ms; the others wait until then and go together, until 20 ms.
		took := make([]time.Duration, 30)
		began := time.Now()
		runs, errs := callers(t, 30, func(i int) (*lifecycle.Run, error) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.Sleep(time.Duration(i) * time.Microsecond)
			switch i {
			case 1: // the first of the group
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
			case 0:
				want = 10 * time.Millisecond
			case 1:
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
		time.Sleep(100 * time.Millisecond) // the run of the caller that left is given back, claimed and driven
		if page, err := e.List(t.Context(), backend.Query{Limit: 100}); err != nil || len(page.Runs) != 29 || !slices.Equal(store.groups, []int{28}) {
			t.Errorf("%d runs, %v, groups of %v: want all but the one that left before it was sent", len(page.Runs), err, store.groups)
		}
		if h := e.Health(); h.Held != 0 || store.ended != 0 {
			t.Errorf("%d slots are held, %d calls were cut", h.Held, store.ended)
		}
		if page, err := e.List(t.Context(), backend.Query{Limit: 100, Statuses: []run.Status{run.Done}}); err != nil || len(page.Runs) != 29 {
			t.Errorf("%d runs are done, %v: want that of a caller that left among them at once", len(page.Runs), err)
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
		_, errs := callers(t, 10, func(i int) (*lifecycle.Run, error) {
			patience := 200 * time.Millisecond
			if i == 0 {
				patience = 100 * time.Millisecond // frees the lane for the group of the others
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
		if took := time.Since(began).Truncate(time.Millisecond); took != 200*time.Millisecond {
			t.Errorf("the last was answered after %v", took)
		}
		synctest.Wait()
		store.mu.Lock()
		defer store.mu.Unlock()
		if store.ended != 2 || !slices.Equal(store.groups, []int{9}) {
			t.Errorf("%d calls ended with their callers, groups of %v", store.ended, store.groups)
		}
	})
}

// Whatever is drawn, each caller has an answer of its own in time, and what is answered as stored is
// stored once.
func TestGroupingChangesNoAnswerOfAStart(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type caller struct{ at, patience, owner int }
		drawn := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) caller {
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
			runs, errs := callers(t, len(drawn), func(i int) (*lifecycle.Run, error) {
				time.Sleep(time.Duration(drawn[i].at)*time.Millisecond + time.Duration(i)*time.Microsecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(drawn[i].patience)*time.Millisecond)
				defer cancel()
				began := time.Now()
				r, err := clients[drawn[i].owner].Start(ctx, ref, nil, lifecycle.StartOptions{})
				if took := time.Since(began).Milliseconds(); took > int64(drawn[i].patience) {
					rt.Errorf("caller %d waited %d ms, its context ended after %d", i, took, drawn[i].patience)
				}
				return r, err
			})
			ids := map[string]bool{}
			for i, r := range runs {
				switch {
				case errs[i] == nil:
					ids[r.ID] = true
					got, err := clients[drawn[i].owner].Await(t.Context(), r.ID)
					if err != nil || got.Status != run.Done {
						rt.Errorf("caller %d: %v, %v", i, got, err)
					}
				case !errors.Is(errs[i], context.DeadlineExceeded) || drawn[i].patience == 1000:
					rt.Errorf("caller %d: %v", i, errs[i])
				}
			}
			if n := len(runs) - len(slices.DeleteFunc(errs, func(err error) bool { return err == nil })); len(ids) != n {
				rt.Errorf("%d ids for %d starts", len(ids), n)
			}
			time.Sleep(5 * time.Minute) // one that left a call of its own has its run a TTL later
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
			if stored < len(ids) || stored > len(drawn) {
				rt.Errorf("%d runs are stored, %d answered of %d callers", stored, len(ids), len(drawn))
			}
		})
	})
}
