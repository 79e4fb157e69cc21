package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

// pruned is a store that notes how it is asked to delete.
type pruned struct {
	*memory.Store
	asked  []backend.PrunePolicy
	answer error
}

func (s *pruned) Features() backend.Features {
	features := s.Store.Features()
	features.Retention = s
	return features
}

func (s *pruned) Prune(ctx context.Context, p backend.PrunePolicy) (backend.Pruned, error) {
	s.asked = append(s.asked, p)
	if s.answer != nil {
		return backend.Pruned{}, s.answer
	}
	return s.Store.Prune(ctx, p)
}

// retained plays five old finished runs, one that waits and one unused graph version under a policy, for so many hours, and
// answers how many finished runs are left.
func retained(t *testing.T, store *pruned, policy lifecycle.Retention, hours int) (left int, log string) {
	t.Helper()
	var logged records
	policy.After, policy.Graphs = time.Hour, true
	e := newEngine(t, store, options{PollInterval: time.Minute, Logger: logged.logger(), Retention: &policy},
		act("work", func(context.Context) error { return nil }), ask)
	serve(t, e)
	waits := start(t, &e.Client, publish(t, &e.Client, question), nil, lifecycle.StartOptions{})
	publish(t, &e.Client, strings.Replace(single, "single", "several", 1)) // a version nobody uses, and not the newest
	ref := publish(t, &e.Client, strings.Replace(single, "id: single", "id: several\npolicies: {max_supersteps: 9}", 1))
	for i := range 5 {
		start(t, &e.Client, ref, nil, lifecycle.StartOptions{ID: fmt.Sprint(i)})
		time.Sleep(time.Second)
	}
	time.Sleep(time.Duration(hours) * time.Hour)
	wantStatus(t, inspect(t, &e.Client, waits.ID), run.Waiting)
	page, err := e.List(t.Context(), backend.Query{Limit: 100, Statuses: []run.Status{run.Done}})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range page.Runs {
		if want := fmt.Sprint(4 - i); r.Run != want {
			t.Errorf("run %s is left, want the newest ones", r.Run)
		}
	}
	return len(page.Runs), logged.String()
}

func TestRetentionKeepsTheNewestWhateverTheirAge(t *testing.T) {
	for _, tt := range []struct{ keep, left int }{{0, 0}, {2, 2}, {5, 5}, {9, 5}} {
		t.Run(fmt.Sprint(tt.keep), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if left, _ := retained(t, &pruned{Store: newMemory(nil)}, lifecycle.Retention{Keep: tt.keep, Batch: 2}, 5); left != tt.left {
					t.Errorf("%d runs are left, want %d", left, tt.left)
				}
			})
		})
	}
}

func TestRetentionDeletesGraphVersionsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &pruned{Store: newMemory(nil)}
		retained(t, store, lifecycle.Retention{Batch: 2, Every: 4 * time.Hour}, 6)
		var order []bool
		for _, p := range store.asked {
			order = append(order, p.Graphs)
		}
		if fmt.Sprint(order) != "[false false false true]" {
			t.Errorf("graphs were asked for in the calls %v, want the last alone", order)
		}
		refs, err := store.GraphVersions(t.Context(), backend.Tenantless(), "several", backend.GraphQuery{Limit: 10})
		if err != nil || len(refs.Versions) != 1 {
			t.Errorf("versions %+v, %v: want the newest only", refs, err)
		}
	})
}

func TestRetentionOnADryRunDeletesNothingAndTellsWhatWouldGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, log := retained(t, &pruned{Store: newMemory(nil)}, lifecycle.Retention{DryRun: true, Every: 4 * time.Hour}, 6)
		if left != 5 || !strings.Contains(log, `"runs":5`) || !strings.Contains(log, `"graphs":1`) || !strings.Contains(log, `"level":"INFO","msg":"belay: looked for finished runs that would be deleted`) {
			t.Errorf("%d runs are left:\n%s", left, log)
		}
	})
}

// One engine at a time deletes: the others neither insist nor complain.
func TestRetentionLeavesItToTheEngineThatIsAtIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &pruned{Store: newMemory(nil), answer: backend.ErrBusy}
		left, log := retained(t, store, lifecycle.Retention{Every: 4 * time.Hour}, 6)
		if left != 5 || len(store.asked) != 1 || strings.Contains(log, "error") {
			t.Errorf("%d runs are left, asked %d times:\n%s", left, len(store.asked), log)
		}
	})
}
