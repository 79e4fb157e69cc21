// Package mutant tells whether the property kit notices a backend that is broken in one place. It is
// for the tests of the kit and of the backends.
package mutant

import (
	"context"
	"flag"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// SetFlags sets flags for the length of a test.
func SetFlags(t *testing.T, values map[string]string) {
	t.Helper()
	for name, v := range values {
		before := flag.Lookup(name).Value.String()
		if err := flag.Set(name, v); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set(name, before) })
	}
}

// Smoke takes a run from its start to its end. A mutant on which not even that works would be
// killed by anything, and prove nothing.
func Smoke(s backend.Store) error {
	ctx, owner := context.Background(), backend.Tenantless()
	raw := value.Value(`{"id":"smoke"}`)
	ref := graph.Ref{ID: "smoke", Hash: value.Hash(raw)}
	if err := s.SaveGraph(ctx, owner, ref, raw); err != nil {
		return err
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	d := &run.Document{ID: "smoke", Graph: ref, Status: run.Running, Step: 1, Pending: []string{"n"}, Seq: 1, EventSeq: 1, StartedAt: now, UpdatedAt: now}
	event := func(seq int64, kind checkpoint.Type) []run.Event {
		return []run.Event{{Run: d.ID, Seq: seq, Type: run.EventCheckpointCommitted, At: now, Step: 1, Checkpoint: kind, Commit: seq}}
	}
	_, err := s.InsertRun(ctx, owner, backend.Initialization{
		Proposal: run.Proposal{
			Document: d, Events: event(1, checkpoint.RunInitialized), Type: checkpoint.RunInitialized,
			Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseNow}, Now: now,
		},
		CheckpointID: "1",
	})
	if err != nil {
		return err
	}
	batch, err := s.ClaimDue(ctx, claim.Policy{Now: now.Add(time.Second), TTL: time.Minute, Limit: 1, MaxAttempts: 3})
	if err != nil || len(batch.Leases) != 1 {
		return fmt.Errorf("a claim gave %d leases: %w", len(batch.Leases), err)
	}
	end := *d
	end.Status, end.Pending, end.Seq, end.EventSeq, end.FinishedAt, end.Output = run.Done, nil, 2, 2, now, value.Value(`{}`)
	if _, err := s.Commit(ctx, backend.System(), backend.Commit{
		Proposal: run.Proposal{
			Document: &end, Events: event(2, checkpoint.RunCompleted), Type: checkpoint.RunCompleted,
			Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseTerminal}, Expected: 1, Now: now,
		},
		CheckpointID: "2", Token: batch.Leases[0].Token,
	}); err != nil {
		return err
	}
	got, err := s.FetchRun(ctx, backend.System(), d.ID)
	if err == nil && got.Status != run.Done {
		err = fmt.Errorf("the run is %s", got.Status)
	}
	return err
}

// Cases lists the conformance cases that kill a mutant, among those of some clauses.
func Cases(open proptest.Opener, timeout time.Duration, clauses ...string) (cases []string) {
	var report proptest.Report
	proptest.Attempt("conformance", nil, func(t proptest.T) {
		report = proptest.Conformance(t, open, proptest.Options{Only: clauses, Timeout: timeout, Log: func(string) {}})
	})
	for _, f := range report.Failed() {
		cases = append(cases, f.Case)
	}
	return cases
}

var (
	ruleBroken = regexp.MustCompile(`failed after \d+ tests?: ([A-Z]\d+): `)
	lastStep   = regexp.MustCompile(`(?m)^ *(\d+)\. `)
)

// Rule is the clause that Check finds broken, and after how many steps; "" when it finds none.
func Rule(open proptest.Opener) (rule, steps string) {
	var said []byte
	passed := proptest.Attempt("check", func(format string, args ...any) {
		said = append(fmt.Appendf(said, format, args...), '\n')
	}, func(t proptest.T) {
		proptest.Check(t, open, proptest.Options{Rounds: 2, Log: func(string) {}})
	})
	if passed {
		return "", ""
	}
	return Told(string(said))
}

// Told is the clause that a failure of Check names, and how many steps its history has.
func Told(failure string) (rule, steps string) {
	rule, steps = "?", "?"
	if found := ruleBroken.FindStringSubmatch(failure); found != nil {
		rule = found[1]
	}
	if all := lastStep.FindAllStringSubmatch(failure, -1); all != nil {
		steps = all[len(all)-1][1]
	}
	return rule, steps
}
