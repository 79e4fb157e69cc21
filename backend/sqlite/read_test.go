package sqlite

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/run"
)

// TestAListOfWhatHasNotFinishedIsAPartOfTheWhole: whatever statuses are asked for, in whatever scope and
// by pages of whatever size, the answer is that part of the list of everything.
func TestAListOfWhatHasNotFinishedIsAPartOfTheWhole(t *testing.T) {
	ctx := context.Background()
	s := soundStore(t)
	must(t, s.SaveGraph(ctx, backend.Tenant("acme"), testRef(), testGraph))
	for n, id := range []string{"acme-1", "acme-2"} {
		in := opening(id)
		in.Document.StartedAt = testClock.Add(time.Duration(n) * time.Second)
		_, err := s.InsertRun(ctx, backend.Tenant("acme"), in)
		must(t, err)
	}
	waiting := insertRun(t, s, "waiting")
	_, err := s.MutateRun(ctx, backend.System(), "waiting", newCheckpointID(), func(*run.Document) (backend.Mutation, error) {
		p := next(waiting, false)
		p.Document.Interrupts = []run.Interrupt{{ID: "q", Node: "work", Question: []byte(`"?"`), Status: run.InterruptOpen, RequestedAt: testClock}}
		p.Document.Status, p.Type, p.Schedule = run.Waiting, checkpoint.InterruptRequested, checkpoint.Schedule{Kind: checkpoint.ReleaseExternal}
		p.Events = []run.Event{closing(p.Document, checkpoint.InterruptRequested)}
		return backend.Mutation{Proposal: &p}, nil
	})
	must(t, err)
	list := func(scope backend.Scope, q backend.Query) (all []string) {
		for {
			page, err := s.ListRuns(ctx, scope, q)
			must(t, err)
			for _, r := range page.Runs {
				all = append(all, r.Run)
			}
			if !page.HasMore {
				return all
			}
			q.Before = page.Next
		}
	}
	statusOf := map[string]run.Status{}
	whole, err := s.ListRuns(ctx, backend.System(), backend.Query{Limit: 100})
	must(t, err)
	for _, r := range whole.Runs {
		statusOf[r.Run] = r.Status
	}
	for _, scope := range []backend.Scope{backend.System(), backend.Of(backend.Tenantless()), backend.Of(backend.Tenant("acme"))} {
		for _, statuses := range [][]run.Status{{run.Running}, {run.Waiting}, {run.Running, run.Waiting}, {run.Running, run.Done}} {
			var want []string
			for _, id := range list(scope, backend.Query{Limit: 100}) {
				if slices.Contains(statuses, statusOf[id]) {
					want = append(want, id)
				}
			}
			for _, limit := range []int{1, 2, 100} {
				if diff := cmp.Diff(want, list(scope, backend.Query{Statuses: statuses, Limit: limit})); diff != "" {
					t.Errorf("%v by %d in %v:\n%s", statuses, limit, scope, diff)
				}
			}
		}
	}
}
