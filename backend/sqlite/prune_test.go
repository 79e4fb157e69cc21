package sqlite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// finishedRun inserts a run that is done, with n more events than it needs.
func finishedRun(t *testing.T, s *Store, id string, n int) {
	t.Helper()
	in := opening(id)
	in.Schedule.Kind, in.Claim = checkpoint.Retain, &backend.StartClaim{}
	got, err := s.InsertRun(context.Background(), backend.Tenantless(), in)
	must(t, err)
	p := next(in.Document, true)
	last := p.Events[1]
	p.Events = p.Events[:1]
	for range n {
		p.Events = append(p.Events, run.Event{Run: id, Seq: p.Document.EventSeq, Type: run.EventNodeCompleted, At: testClock, Step: 1, Node: "work"})
		p.Document.EventSeq++
	}
	last.Seq = p.Document.EventSeq
	p.Events = append(p.Events, last)
	_, err = s.Commit(context.Background(), backend.System(), commitOf(*got.Lease, p))
	must(t, err)
}

func pages(t *testing.T, s *Store) (count, free int64) {
	t.Helper()
	must(t, s.readers.use(context.Background(), func(c *conn) error {
		if err := c.read(context.Background(), "pragma page_count", func(r row) error { count = r.int(0); return nil }); err != nil {
			return err
		}
		return c.read(context.Background(), "pragma freelist_count", func(r row) error { free = r.int(0); return nil })
	}))
	return count, free
}

// TestADryRunSaysWhenThereIsMore: what it counts is then the least that would go.
func TestADryRunSaysWhenThereIsMore(t *testing.T) {
	s := openStore(t, Options{})
	publishGraph(t, s)
	for n := range 3 {
		finishedRun(t, s, fmt.Sprintf("run-%d", n), 0)
	}
	for limit, want := range map[int]backend.Pruned{2: {Runs: 2, Events: 8, More: true}, 3: {Runs: 3, Events: 12}} {
		got, err := s.Prune(context.Background(), backend.PrunePolicy{Before: testClock.Add(time.Hour), Limit: limit, DryRun: true})
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limit %d:\n%s", limit, diff)
		}
	}
}

// TestPruneForgetsWhoHasNoRuns: owners that are gone leave no turn behind, the others keep theirs.
func TestPruneForgetsWhoHasNoRuns(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, Options{})
	publishGraph(t, s)
	must(t, s.SaveGraph(ctx, backend.Tenant("acme"), testRef(), testGraph))
	insertRun(t, s, "stays")
	goes := opening("goes")
	_, err := s.InsertRun(ctx, backend.Tenant("acme"), goes)
	must(t, err)
	b, err := s.ClaimDue(ctx, claim.Policy{Now: testClock, TTL: time.Minute, Limit: 2, MaxAttempts: 5, Fairness: claim.Interleave})
	must(t, err)
	for _, l := range b.Leases {
		if l.Run == "goes" {
			_, err := s.Commit(ctx, backend.System(), commitOf(l, next(goes.Document, true)))
			must(t, err)
		}
	}
	turns := func() (owners []string) {
		must(t, s.readers.use(ctx, func(c *conn) error {
			return c.read(ctx, "select owner from belay_turns order by owner", func(r row) error { owners = append(owners, r.text(0)); return nil })
		}))
		return owners
	}
	if diff := cmp.Diff([]string{"", "acme"}, turns()); diff != "" {
		t.Fatal(diff)
	}
	_, err = s.Prune(ctx, backend.PrunePolicy{Before: testClock.Add(time.Hour), Limit: 10})
	must(t, err)
	if diff := cmp.Diff([]string{""}, turns()); diff != "" {
		t.Error(diff)
	}
}

// TestPruneGivesPagesBack: the file shrinks to about what it was, and no page stays free.
func TestPruneGivesPagesBack(t *testing.T) {
	s := openStore(t, Options{Synchronous: Normal})
	publishGraph(t, s)
	empty, _ := pages(t, s)
	for n := range 100 {
		finishedRun(t, s, fmt.Sprintf("run-%d", n), 0)
	}
	full, _ := pages(t, s)
	insertRun(t, s, "stays")
	pruned, err := s.Prune(context.Background(), backend.PrunePolicy{Before: testClock.Add(time.Hour), Limit: 1000})
	must(t, err)
	if diff := cmp.Diff(backend.Pruned{Runs: 100, Events: 400}, pruned); diff != "" {
		t.Errorf("pruned:\n%s", diff)
	}
	after, free := pages(t, s)
	if free != 0 || after > empty+(full-empty)/4 {
		t.Errorf("%d pages empty, %d full, %d after, of which %d free", empty, full, after, free)
	}
	if found := auditAll(t, s, backend.AuditPolicy{}); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}

// TestPruneGoesInSteps: a run with many rows of events goes in several transactions, the oldest
// events first, and a store in the middle of it is sound.
func TestPruneGoesInSteps(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, Options{Synchronous: Normal, WriteFormat: 1})
	publishGraph(t, s)
	finishedRun(t, s, "long", pruneRows)
	k := &prune{s: s, policy: backend.PrunePolicy{Before: testClock.Add(time.Hour), Limit: 1}}
	found, err := k.find(ctx, finished{finished: -1 << 63}, 1)
	must(t, err)
	must(t, s.writer.do(ctx, &operation{name: "first step", run: func(c *conn, _ bool) error {
		events, rows, err := k.deleteEvents(c, found[0], pruneRows)
		if events != pruneRows || rows != pruneRows {
			t.Errorf("%d events in %d rows in the first step", events, rows)
		}
		return err
	}}))
	if found := auditAll(t, s, backend.AuditPolicy{}); len(found) > 0 {
		t.Errorf("%+v", found)
	}
	page, err := s.ListEvents(ctx, backend.System(), "long", backend.EventQuery{Limit: 1})
	must(t, err)
	if page.Oldest != pruneRows+1 || page.Latest != pruneRows+4 {
		t.Errorf("events %d to %d are left", page.Oldest, page.Latest)
	}
	pruned, err := s.Prune(ctx, k.policy)
	must(t, err)
	if diff := cmp.Diff(backend.Pruned{Runs: 1, Events: 4}, pruned); diff != "" {
		t.Errorf("pruned:\n%s", diff)
	}
}

// TestPruneLooksAgain: a number that another process has freed and given to a new run
// meanwhile is not the run that was found.
func TestPruneLooksAgain(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, Options{})
	publishGraph(t, s)
	finishedRun(t, s, "old", 0)
	k := &prune{s: s, policy: backend.PrunePolicy{Before: testClock.Add(time.Hour), Limit: 1}}
	found, err := k.find(ctx, finished{finished: -1 << 63}, 1)
	must(t, err)
	_, err = s.Prune(ctx, k.policy)
	must(t, err)
	finishedRun(t, s, "new", 0)
	must(t, k.delete(ctx, found))
	if !exists(t, s, "new") || k.done.Runs != 0 {
		t.Errorf("the new run is gone: %+v", k.done)
	}
}

// TestDrivers: the note of who drives a run is replaced, read, and goes with the run.
func TestDrivers(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, Options{})
	publishGraph(t, s)
	finishedRun(t, s, "a", 0)
	if _, err := s.DriverOf(ctx, "a"); err != backend.ErrNotFound {
		t.Errorf("before: %v", err)
	}
	if err := s.NoteDriver(ctx, "absent", Driver{Host: "h", PID: 1}); err != backend.ErrNotFound {
		t.Errorf("of an absent run: %v", err)
	}
	must(t, s.NoteDriver(ctx, "a", Driver{Host: "one", PID: 1, NotedAt: testClock}))
	want := Driver{Host: "two", PID: 2, NotedAt: testClock.Add(time.Second)}
	must(t, s.NoteDriver(ctx, "a", want))
	got, err := s.DriverOf(ctx, "a")
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	_, err = s.Prune(ctx, backend.PrunePolicy{Before: testClock.Add(time.Hour), Limit: 1})
	must(t, err)
	if _, err := s.DriverOf(ctx, "a"); err != backend.ErrNotFound {
		t.Errorf("after: %v", err)
	}
}

// TestFindRuns: by prefix, bytewise, in order, in the scope, up to the limit.
func TestFindRuns(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, Options{})
	publishGraph(t, s)
	for _, id := range []string{"aa", "ab", "ab%", "abc", "aé", "b"} {
		insertRun(t, s, id)
	}
	for prefix, want := range map[string][]string{
		"a": {"aa", "ab", "ab%", "abc", "aé"}, "ab": {"ab", "ab%", "abc"}, "ab%": {"ab%"}, "aé": {"aé"}, "c": nil, "abcd": nil,
	} {
		got, err := s.FindRuns(ctx, backend.System(), prefix, 10)
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", prefix, diff)
		}
	}
	if got, err := s.FindRuns(ctx, backend.System(), "a", 2); err != nil || len(got) != 2 {
		t.Errorf("%q %v", got, err)
	}
	if got, err := s.FindRuns(ctx, backend.Of(backend.Tenant("acme")), "a", 2); err != nil || len(got) != 0 {
		t.Errorf("another tenant's: %q %v", got, err)
	}
	if _, err := s.FindRuns(ctx, backend.System(), "", 2); err == nil {
		t.Error("an empty prefix")
	}
}
