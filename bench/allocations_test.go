package main

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// TestAllocationsStayWithinTheirBounds pins what a run costs in allocations where the figure does not depend on the machine. A bound
// may be lowered with the code, and is raised only for a reason that the commit tells.
func TestAllocationsStayWithinTheirBounds(t *testing.T) {
	m, d, err := oneNode()
	if err != nil {
		t.Fatal(err)
	}
	now := d.StartedAt
	var settled run.Proposal
	planAndSettle := func() {
		plan, err := m.Plan(d, now)
		if err != nil {
			t.Fatal(err)
		}
		if settled, err = m.Settle(d, plan, []run.Result{run.Completed("step0", nil)}, now); err != nil {
			t.Fatal(err)
		}
	}
	planAndSettle()
	candidates := make([]claim.Candidate, 1000)
	for i := range candidates {
		j := i * 7919 % len(candidates) // in no order
		candidates[i] = claim.Candidate{
			ID: fmt.Sprintf("run-%04d", j), Owner: claim.Tenant(fmt.Sprint("tenant-", j%20)),
			Class: claim.Class(1 + j%7/6), At: now.Add(time.Duration(j) * time.Millisecond),
		}
	}
	choose := func(fairness claim.Fairness) func() {
		return func() {
			if n := len(claim.Select(candidates, claim.Policy{Limit: 32, Fairness: fairness}, nil)); n != 32 {
				t.Fatalf("%d of 32 selected", n)
			}
		}
	}
	for _, c := range []struct {
		what string
		most float64
		work func()
	}{
		{"plan and settle a one-node run", 9, planAndSettle},
		{"encode its document", 2, func() {
			if _, err := run.Encode(settled.Document); err != nil {
				t.Fatal(err)
			}
		}},
		{"encode its closing event", 1, func() {
			if _, err := run.EncodeEvent(settled.Events[len(settled.Events)-1]); err != nil {
				t.Fatal(err)
			}
		}},
		{"select 32 of 1000 by age", 3, choose(claim.OldestFirst)},
		{"select 32 of 1000 in turns", 7, choose(claim.Interleave)},
	} {
		t.Run(c.what, func(t *testing.T) {
			if got := testing.AllocsPerRun(200, c.work); got > c.most {
				t.Errorf("%v allocations, at most %v are allowed", got, c.most)
			} else {
				t.Logf("%v allocations", got)
			}
		})
	}
}

// TestADrivenRunStaysWithinItsBounds pins what the engine allocates to claim, execute and commit a one-node run in memory: row P7
// without the machine that it runs on.
func TestADrivenRunStaysWithinItsBounds(t *testing.T) {
	const runs, mostAllocations, mostBytes = 5000, 28, 5600
	store := memory.New(memory.Options{})
	defer store.Close()
	b, err := newBelay(t.Context(), store, memorySlots, 1, runs)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.startAll(t.Context(), runs, text(1000)); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := b.drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	allocations := float64(after.Mallocs-before.Mallocs) / runs
	bytes := float64(after.TotalAlloc-before.TotalAlloc) / runs
	t.Logf("%.1f allocations, %.0f bytes", allocations, bytes)
	if allocations > mostAllocations || bytes > mostBytes {
		t.Errorf("%.1f allocations and %.0f bytes a run, at most %d and %d are allowed", allocations, bytes, mostAllocations, mostBytes)
	}
	if err := b.check(t.Context(), store, runs); err != nil {
		t.Error(err)
	}
}
