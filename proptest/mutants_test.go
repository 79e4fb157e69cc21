package proptest_test

import (
	"cmp"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// mutant is the memory backend with one clause broken in one place.
type mutant struct {
	// clause is the clause that is broken, name says how.
	clause, name string
	breaks       func(b *broken)
}

// opened opens the mutant, empty.
func (m mutant) opened() (backend.Store, proptest.Hooks) {
	b := newBroken(memory.Options{})
	m.breaks(b)
	if b.line != nil {
		return b.line, proptest.Hooks{Trouble: b.line.trouble()}
	}
	return b, proptest.Hooks{}
}

// opener opens the mutant.
func (m mutant) opener() proptest.Opener {
	return func(t proptest.T) proptest.Opened {
		s, hooks := m.opened()
		t.Cleanup(func() { _ = s.Close() })
		return proptest.Opened{Store: s, Hooks: hooks}
	}
}

// TestMutants is the proof that the kit can fail: of every mutant it says which case of its
// clause kills it, and which rule Check breaks on it after how many steps. Under the race
// detector, which has nothing to find here and would take minutes, Check is left out.
func TestMutants(t *testing.T) {
	setFlags(t, map[string]string{"rapid.shrinktime": "0s", "rapid.nofailfile": "true", "rapid.seed": "7"})
	mutants := slices.Concat(claimMutants, holderMutants, commitMutants, insertMutants, readMutants, featureMutants, troubleMutants)
	killed, byCheck := 0, 0
	var b strings.Builder
	for _, m := range mutants {
		if text := smoke(m); text != "" {
			t.Errorf("%s, %s: it is not viable: %s", m.clause, m.name, text)
		}
		cases := conformanceKills(m)
		rule, steps := "", ""
		if !raceDetector {
			rule, steps = checkKills(m)
		}
		if rule != "" {
			byCheck++
		}
		if rule != "" || len(cases) > 0 {
			killed++
		} else {
			t.Errorf("%s, %s: nothing kills it", m.clause, m.name)
		}
		if len(cases) == 0 {
			t.Errorf("%s, %s: no case of its clause kills it", m.clause, m.name)
		}
		fmt.Fprintf(&b, "%-4s %-66s %-30s", m.clause, m.name, cmp.Or(strings.Join(cases[:min(len(cases), 1)], ""), "-"))
		if rule != "" {
			fmt.Fprintf(&b, " %s after %s steps", rule, steps)
		}
		b.WriteByte('\n')
	}
	t.Logf("\n%sby Check alone %d\nkilled %d of %d", b.String(), byCheck, killed, len(mutants))
	if byCheck < 45 && !raceDetector {
		t.Errorf("Check alone kills %d; it must kill 45 at least", byCheck)
	}
}

// setFlags sets flags for the length of a test.
func setFlags(t *testing.T, values map[string]string) {
	t.Helper()
	for name, v := range values {
		before := flag.Lookup(name).Value.String()
		if err := flag.Set(name, v); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set(name, before) })
	}
}

// writef adds a line to a text.
func writef(b *strings.Builder, format string, args ...any) {
	fmt.Fprintf(b, format+"\n", args...)
}

// conformanceKills lists the cases of the mutant's clause that fail.
func conformanceKills(m mutant) []string {
	var report proptest.Report
	proptest.Attempt("conformance", nil, func(t proptest.T) {
		o := proptest.Options{Only: []string{m.clause}, Timeout: time.Second, Log: func(string) {}}
		report = proptest.Conformance(t, m.opener(), o)
	})
	var cases []string
	for _, f := range report.Failed() {
		cases = append(cases, f.Case)
	}
	return cases
}

var (
	ruleBroken = regexp.MustCompile(`failed after \d+ tests?: ([A-Z]\d+): `)
	lastStep   = regexp.MustCompile(`(?m)^ *(\d+)\. `)
)

// checkKills is the clause that Check names, and the length of the history.
func checkKills(m mutant) (rule, steps string) {
	var text strings.Builder
	passed := proptest.Attempt("check", func(format string, args ...any) {
		writef(&text, format, args...)
	}, func(t proptest.T) {
		proptest.Check(t, m.opener(), proptest.Options{Rounds: 2, Log: func(string) {}})
	})
	if passed {
		return "", ""
	}
	rule, steps = "?", "?"
	if found := ruleBroken.FindStringSubmatch(text.String()); found != nil {
		rule = found[1]
	}
	if all := lastStep.FindAllStringSubmatch(text.String(), -1); all != nil {
		steps = all[len(all)-1][1]
	}
	return rule, steps
}

// smoke takes a run from its start to its end on the mutant. A mutant on which not even
// that works would be killed by anything, and prove nothing.
func smoke(m mutant) string {
	b, _ := m.opened()
	defer b.Close()
	raw := value.Value(`{"id":"smoke"}`)
	ref := graph.Ref{ID: "smoke", Hash: value.Hash(raw)}
	owner := backend.Tenantless()
	if err := b.SaveGraph(ctx, owner, ref, raw); err != nil {
		return err.Error()
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	d := &run.Document{ID: "r", Graph: ref, Status: run.Running, Step: 1, Pending: []string{"n"}, Seq: 1, EventSeq: 1, StartedAt: now, UpdatedAt: now}
	event := func(seq int64, kind checkpoint.Type) []run.Event {
		return []run.Event{{Run: "r", Seq: seq, Type: run.EventCheckpointCommitted, At: now, Step: 1, Checkpoint: kind, Commit: seq}}
	}
	_, err := b.InsertRun(ctx, owner, backend.Initialization{
		Proposal: run.Proposal{
			Document: d, Events: event(1, checkpoint.RunInitialized), Type: checkpoint.RunInitialized,
			Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseNow}, Now: now,
		},
		CheckpointID: "1",
	})
	if err != nil {
		return err.Error()
	}
	batch, err := b.ClaimDue(ctx, claim.Policy{Now: now.Add(time.Second), TTL: time.Minute, Limit: 1, MaxAttempts: 3})
	if err != nil || len(batch.Leases) != 1 {
		return fmt.Sprintf("a claim gave %d leases: %v", len(batch.Leases), err)
	}
	end := *d
	end.Status, end.Pending, end.Seq, end.EventSeq, end.FinishedAt, end.Output = run.Done, nil, 2, 2, now, value.Value(`{}`)
	if _, err := b.Commit(ctx, backend.System(), backend.Commit{
		Proposal: run.Proposal{
			Document: &end, Events: event(2, checkpoint.RunCompleted), Type: checkpoint.RunCompleted,
			Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseTerminal}, Expected: 1, Now: now,
		},
		CheckpointID: "2", Token: batch.Leases[0].Token,
	}); err != nil {
		return err.Error()
	}
	if got, err := b.FetchRun(ctx, backend.System(), "r"); err != nil || got.Status != run.Done {
		return fmt.Sprintf("the run is not done: %v", err)
	}
	return ""
}
