package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// lines is what Compat answered, a line for each graph version.
func lines(all []lifecycle.Compatibility) string {
	var b strings.Builder
	for _, c := range all {
		tenant, _ := c.Owner.Tenant()
		fmt.Fprintf(&b, "%s %s running %d waiting %d poisoned %d unreadable %d:", c.Graph.ID, tenant, c.Running, c.Waiting, c.Poisoned, c.Unreadable)
		for _, r := range c.Reasons {
			fmt.Fprintf(&b, " %s %s", r.Node, r.Code)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestCompatAnswersAsAnEngineWould: what is compatible is executed, what is not is handed back, for the
// reasons that are told; finished runs do not count.
func TestCompatAnswersAsAnEngineWould(t *testing.T) {
	clock := lifecycle.NewVirtualClock(epoch)
	store := newMemory(clock)
	work := act("work", func(context.Context) error { return nil })
	able := newEngine(t, store, options{Clock: clock}, work, ask)
	ref, asking := publish(t, &able.Client, single), publish(t, &able.Client, question)
	finished := start(t, &able.Client, ref, nil, lifecycle.StartOptions{})
	start(t, &able.Client, asking, nil, lifecycle.StartOptions{})
	drain(t, able)
	wantStatus(t, inspect(t, &able.Client, finished.ID), run.Done)
	acme := able.For("acme")
	start(t, acme, publish(t, acme, single), nil, lifecycle.StartOptions{At: epoch.Add(time.Hour)})
	poisoned := start(t, acme, ref, nil, lifecycle.StartOptions{})
	for range 2 {
		clock.Advance(time.Hour)
		if _, err := store.ClaimDue(t.Context(), claim.Policy{Limit: 1, MaxAttempts: 1, Filter: claim.Filter{Runs: []string{poisoned.ID}}}); err != nil {
			t.Fatal(err)
		}
	}

	compat := func(types ...node.Type) []lifecycle.Compatibility {
		t.Helper()
		all, err := lifecycle.Compat(t.Context(), store, node.NewRegistry().Add(types...), lifecycle.CompatOptions{Documents: true})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	name := parse(t, question).ID
	counts := fmt.Sprintf("%s  running 0 waiting 1 poisoned 0 unreadable 0:%%s\n%s acme running 1 waiting 0 poisoned 1 unreadable 0:%%s\n", name, ref.ID)
	if ref.ID < name {
		t.Fatal("the graphs are in another order than the test expects")
	}
	if got, want := lines(compat(work, ask)), fmt.Sprintf(counts, "", ""); got != want {
		t.Errorf("able:\n%swant\n%s", got, want)
	}
	all := compat(ask)
	if got := lines(all); !strings.HasSuffix(got, " unreadable 0: work unknown_node_type\n") || strings.Count(got, "unknown") != 1 {
		t.Errorf("unable:\n%s", got)
	}
	if !all[1].Oldest.Equal(epoch) {
		t.Errorf("the oldest run started at %v", all[1].Oldest)
	}
	var abandons []lifecycle.Abandon
	unable := newEngine(t, store, options{Clock: clock, Observers: whenAbandoned(func(a lifecycle.Abandon) { abandons = append(abandons, a) })}, ask)
	drain(t, unable)
	if len(abandons) != 1 || abandons[0].Graph != all[1].Graph || fmt.Sprint(abandons[0].Reasons) != fmt.Sprint(all[1].Reasons) {
		t.Errorf("an engine says %+v, Compat %+v", abandons, all[1].Reasons)
	}
}

// damagedReads is a store whose reads of documents and graphs fail.
type damagedReads struct {
	backend.Store
	document, graph error
}

func (s damagedReads) FetchRun(ctx context.Context, scope backend.Scope, id string) (*run.Document, error) {
	if s.document != nil {
		return nil, s.document
	}
	return s.Store.FetchRun(ctx, scope, id)
}

func (s damagedReads) FetchGraph(ctx context.Context, owner backend.Owner, ref graph.Ref) (value.Value, error) {
	if s.graph != nil {
		return nil, s.graph
	}
	return s.Store.FetchGraph(ctx, owner, ref)
}

func TestCompatTellsDamageFromTroubleOfTheMoment(t *testing.T) {
	store := newMemory(nil)
	work := act("work", func(context.Context) error { return nil })
	e := newEngine(t, store, options{}, work)
	ref := publish(t, &e.Client, single)
	for range 2 {
		start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
	}
	for name, c := range map[string]struct {
		store damagedReads
		code  string // empty: an error
		count int
	}{
		"a newer document":  {damagedReads{document: fmt.Errorf("stored: %w", run.ErrFormat)}, lifecycle.CodeNewerDocument, 2},
		"a sealed document": {damagedReads{document: fmt.Errorf("stored: %w", &backend.SealedError{Run: "r", What: "document", Key: "k", Err: backend.ErrUnknownKey})}, lifecycle.CodeSealedDocument, 2},
		"a failing sealer":  {damagedReads{document: &backend.SealingError{Run: "r", What: "document", Op: "open", Key: "k", Err: errInjected}}, "", 0},
		"a broken document": {damagedReads{document: fmt.Errorf("stored: %w", backend.ErrCorrupt)}, lifecycle.CodeCorruptDocument, 2},
		"a run that went":   {damagedReads{document: backend.ErrNotFound}, "none", 0},
		"no connection":     {damagedReads{document: transient("fetch")}, "", 0},
		"no graph":          {damagedReads{graph: backend.ErrNotFound}, lifecycle.CodeMissingGraph, 0},
		"a broken graph":    {damagedReads{graph: backend.ErrCorruptGraph}, lifecycle.CodeCorruptGraph, 0},
		"no graph now":      {damagedReads{graph: transient("graph")}, "", 0},
	} {
		c.store.Store = store
		all, err := lifecycle.Compat(t.Context(), c.store, node.NewRegistry().Add(work), lifecycle.CompatOptions{Documents: true})
		switch {
		case c.code == "":
			if !errors.Is(err, errInjected) {
				t.Errorf("%s: %v, %v", name, lines(all), err)
			}
		case err != nil || len(all) != 1 || all[0].Unreadable != c.count:
			t.Errorf("%s: %v, %v", name, lines(all), err)
		case c.code == "none" && len(all[0].Reasons) == 0:
		case len(all[0].Reasons) != 1 || all[0].Reasons[0].Code != c.code:
			t.Errorf("%s: %v", name, lines(all))
		}
	}
}
