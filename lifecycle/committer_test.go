package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

// grouping is a store that takes its time for commits, and records its groups.
type grouping struct {
	backend.Store
	takes  time.Duration
	before func(cs []backend.Commit) // called for every group
	answer func(cs []backend.Commit, answers []backend.CommitResult) []backend.CommitResult

	mu     sync.Mutex
	groups []int
	single int
}

func (g *grouping) Features() backend.Features {
	f := g.Store.Features()
	f.Batches = groupingBatches{f.Batches, g}
	return f
}

func (g *grouping) Commit(ctx context.Context, scope backend.Scope, c backend.Commit) (backend.Committed, error) {
	g.mu.Lock()
	g.single++
	takes := g.takes
	g.mu.Unlock()
	time.Sleep(takes)
	return g.Store.Commit(ctx, scope, c)
}

type groupingBatches struct {
	backend.Batches
	g *grouping
}

func (b groupingBatches) Commits(ctx context.Context, scope backend.Scope, cs []backend.Commit) []backend.CommitResult {
	b.g.mu.Lock()
	b.g.groups = append(b.g.groups, len(cs))
	takes := b.g.takes
	b.g.mu.Unlock()
	time.Sleep(takes)
	if b.g.before != nil {
		b.g.before(cs)
	}
	answers := b.Batches.Commits(ctx, scope, cs)
	if b.g.answer != nil {
		answers = b.g.answer(cs, answers)
	}
	return answers
}

func TestCommitsThatComeTogetherGoInGroupsAndALoneOneAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &grouping{Store: newMemory(nil), takes: time.Millisecond}
		e := newEngine(t, store, options{Concurrency: 100}, act("work", func(context.Context) error { time.Sleep(time.Second); return nil }))
		ref := publish(t, &e.Client, single)
		for range 100 {
			start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		}
		began := time.Now()
		drain(t, e)
		if took := time.Since(began); took != time.Second+2*time.Millisecond {
			t.Errorf("it took %v, want the node, a commit alone and a group", took)
		}
		members := 0
		for _, n := range store.groups {
			members += n
		}
		if store.single+members != 100 || len(store.groups) > 4 || store.single > 8 {
			t.Errorf("%d commits alone and groups of %v, want all but a few in groups", store.single, store.groups)
		}
		store.groups, store.single = nil, 0
		start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		began = time.Now()
		drain(t, e)
		if took := time.Since(began); took != time.Second+time.Millisecond || store.single != 1 {
			t.Errorf("a commit that is alone took %v, %d alone", took, store.single)
		}
	})
}

// Of a backend that answers at once nobody waits for a group, until it takes its time again.
func TestABackendThatAnswersAtOnceIsAskedForEachCommitAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rounds := []struct {
			name  string
			takes time.Duration
			alone bool
		}{
			{"not known yet", time.Microsecond, false},
			{"at once", time.Microsecond, true},
			{"not any more, which those show that were sent at once", time.Millisecond, true},
			{"slowly", time.Millisecond, false},
		}
		store := &grouping{Store: newMemory(nil)}
		e := newEngine(t, store, options{Concurrency: 100}, act("work", func(context.Context) error { time.Sleep(time.Second); return nil }))
		ref := publish(t, &e.Client, chain(len(rounds)))
		for range 100 {
			start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		}
		over := background(t, e, t.Context())
		for _, round := range rounds {
			store.mu.Lock()
			store.takes, store.groups, store.single = round.takes, nil, 0
			store.mu.Unlock()
			time.Sleep(time.Second + 100*time.Millisecond)
			store.mu.Lock()
			if alone := store.single == 100 && len(store.groups) == 0; alone != round.alone || !alone && store.single > 8 {
				t.Errorf("%s: %d alone and groups of %v", round.name, store.single, store.groups)
			}
			store.mu.Unlock()
		}
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

func TestWhateverSpoilsAGroupItsMembersCommitAlone(t *testing.T) {
	all := func(err error) func([]backend.Commit, []backend.CommitResult) []backend.CommitResult {
		return func(_ []backend.Commit, answers []backend.CommitResult) []backend.CommitResult {
			for i := range answers {
				answers[i] = backend.CommitResult{Err: err}
			}
			return answers
		}
	}
	for _, tt := range []struct {
		name  string
		spoil func(g *grouping)
	}{
		{"a panic before", func(g *grouping) { g.before = func([]backend.Commit) { panic("no") } }},
		{"a panic after", func(g *grouping) {
			g.answer = func([]backend.Commit, []backend.CommitResult) []backend.CommitResult { panic("no") }
		}},
		{"too few answers", func(g *grouping) {
			g.answer = func(_ []backend.Commit, a []backend.CommitResult) []backend.CommitResult { return a[1:] }
		}},
		{"a lost answer", func(g *grouping) { g.answer = all(unknown("commits")) }},
		{"a permanent answer", func(g *grouping) { g.answer = all(backend.ErrInvalidCommit) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &grouping{Store: newMemory(nil), takes: time.Millisecond}
				tt.spoil(store)
				var launches atomic.Int64
				e := newEngine(t, store, options{Concurrency: 50}, act("work", func(context.Context) error { launches.Add(1); time.Sleep(time.Second); return nil }))
				ref := publish(t, &e.Client, single)
				for range 50 {
					start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
				}
				if d := drain(t, e); d.Commits != 50 || launches.Load() != 50 || len(store.groups) == 0 {
					t.Errorf("%+v, %d launches, groups %v", d, launches.Load(), store.groups)
				}
				page, err := e.List(t.Context(), backend.Query{Limit: 100, Statuses: []run.Status{run.Done}})
				if err != nil || len(page.Runs) != 50 {
					t.Errorf("%d done, %v", len(page.Runs), err)
				}
			})
		})
	}
}

// Whatever is drawn, every run ends as it does when each commit goes alone.
func TestGroupingChangesNoAnswer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nodes := rapid.IntRange(1, 4).Draw(rt, "nodes")
		runs := rapid.IntRange(1, 30).Draw(rt, "runs")
		concurrency := rapid.IntRange(1, 30).Draw(rt, "concurrency")
		fails := rapid.SliceOfN(rapid.Bool(), 1, 8).Draw(rt, "which runs are cancelled in flight")
		outcome := func(grouped bool) string {
			var out string
			synctest.Test(t, func(t *testing.T) {
				store := &grouping{Store: newMemory(nil), takes: time.Millisecond}
				var used backend.Store = store
				if !grouped {
					used = &faulty{Store: store}
				}
				e := newEngine(t, used, options{Concurrency: concurrency}, act("work", func(context.Context) error { time.Sleep(time.Second); return nil }))
				ref := publish(t, &e.Client, chain(nodes))
				for i := range runs {
					start(t, &e.Client, ref, nil, lifecycle.StartOptions{ID: fmt.Sprint(i)})
				}
				over := background(t, e, t.Context())
				time.Sleep(500 * time.Millisecond)
				for i := range runs {
					if fails[i%len(fails)] {
						if _, err := e.Cancel(t.Context(), fmt.Sprint(i), ""); err != nil && !errors.Is(err, run.ErrInactiveRun) {
							t.Error(err)
						}
					}
				}
				if err := <-over; err != nil {
					t.Error(err)
				}
				for i := range runs {
					r := inspect(t, &e.Client, fmt.Sprint(i))
					out += fmt.Sprintf("%s %s %d %d;", r.ID, r.Status, r.Seq, r.Attempts)
				}
			})
			return out
		}
		if alone, together := outcome(false), outcome(true); alone != together {
			rt.Errorf("alone:    %s\ntogether: %s", alone, together)
		}
	})
}
