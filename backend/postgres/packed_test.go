package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/internal/pgtest"
	"github.com/belay-run/belay/internal/sealtest"
	"github.com/belay-run/belay/run"
)

// rowsOf are the rows of a run's history: the first and the last event of each.
func (f *fixture) rowsOf(t *testing.T, id string) (rows []string) {
	t.Helper()
	found, err := f.raw.Query(t.Context(), "select seq, body from "+f.table("events")+" where run_id = $1 order by seq", id)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var seq int64
		var body []byte
		if err := found.Scan(&seq, &body); err != nil {
			t.Fatal(err)
		}
		first, err := backend.FirstEvent(id, seq, body)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, fmt.Sprintf("%d-%d", first, seq))
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// started is a claimed run, which has the events 1 and 2.
func started(t *testing.T, s backend.Store, id string) (*run.Document, claim.Token) {
	t.Helper()
	ref, raw := aGraph()
	if err := s.SaveGraph(t.Context(), backend.Tenantless(), ref, raw); err != nil {
		t.Fatal(err)
	}
	in := draft(id, func(in *backend.Initialization) {
		in.Document.Pending = []string{"work"}
		in.Schedule.Kind, in.Claim = checkpoint.Retain, &backend.StartClaim{TTL: time.Minute}
	})
	inserted, err := s.InsertRun(t.Context(), backend.Tenantless(), in)
	if err != nil {
		t.Fatal(err)
	}
	return in.Document, inserted.Lease.Token
}

// next is the run's next commit, with the events given and its closing one under the sequence last.
func next(d *run.Document, token claim.Token, last int64, events ...run.Event) backend.Commit {
	after := *d
	after.Seq, after.EventSeq = d.Seq+1, last
	closing := run.Event{Run: d.ID, Seq: last, Type: run.EventCheckpointCommitted, At: began, Checkpoint: checkpoint.StepCommitted, Commit: after.Seq}
	return backend.Commit{
		Proposal: run.Proposal{
			Expected: d.Seq, Document: &after, Type: checkpoint.StepCommitted, Schedule: checkpoint.Schedule{Kind: checkpoint.Retain}, Now: began,
			Events: append(events, closing),
		},
		CheckpointID: checkpoint.ID(fmt.Sprintf("commit %d of %s", after.Seq, d.ID)), Token: token,
	}
}

func worked(id string, seq int64, node string) run.Event {
	return run.Event{Run: id, Seq: seq, Type: run.EventNodeCompleted, At: began, Node: node}
}

func seqsOf(t *testing.T, s backend.Store, id string) (seqs []int64) {
	t.Helper()
	page, err := s.ListEvents(t.Context(), backend.System(), id, backend.EventQuery{Limit: backend.MaxLimit})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Events {
		seqs = append(seqs, e.Seq)
	}
	if n := len(seqs); n > 0 && (page.Oldest != seqs[0] || page.Latest != seqs[n-1] || page.Next != seqs[n-1]) {
		t.Errorf("a page of the events %v says %d, %d, %d", seqs, page.Oldest, page.Latest, page.Next)
	}
	return seqs
}

// TestCommitsAmongStoredEvents (T1, T6, E1): what of a commit's events is stored already, in rows of one
// or of several, sealed or plain, is left out, and the others are stored; other content under a
// sequence of any of them changes nothing. A commit alone and one in a group do the same.
func TestCommitsAmongStoredEvents(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		events []run.Event
		last   int64
		rows   []string
		fails  bool
	}{
		"none of them":            {events: []run.Event{worked("r", 3, "a")}, last: 4, rows: []string{"1-2", "3-4"}},
		"one":                     {last: 3, rows: []string{"1-2", "3-3"}},
		"the end of a row":        {events: []run.Event{closingOf("r", 2), worked("r", 3, "a")}, last: 4, rows: []string{"1-2", "3-3", "4-4"}},
		"a whole row":             {events: []run.Event{firstOf("r"), closingOf("r", 2), worked("r", 3, "a")}, last: 4, rows: []string{"1-2", "3-3", "4-4"}},
		"the beginning of a row":  {events: []run.Event{firstOf("r")}, last: 3, rows: []string{"1-2", "3-3"}},
		"other content at an end": {events: []run.Event{worked("r", 2, "a")}, last: 3, fails: true},
		"other content inside":    {events: []run.Event{worked("r", 1, "a")}, last: 3, fails: true},
		"other content before":    {last: 1, fails: true},
	} {
		for _, as := range []string{"alone", "in a group"} {
			for _, sealer := range []backend.Sealer{nil, sealtest.Keys(t, "k1")} {
				t.Run(fmt.Sprintf("%s/%s/%v", name, as, sealer != nil), func(t *testing.T) {
					a := direct(t)
					a.opts.Sealer = sealer
					f := newFixture(t, a, pgtest.Schema(t))
					d, token := started(t, f.store, "r")
					other, otherToken := started(t, f.store, "other")
					c := next(d, token, test.last, test.events...)
					var err error
					if as == "alone" {
						_, err = f.store.Commit(t.Context(), backend.System(), c)
					} else {
						results := f.store.Commits(t.Context(), backend.System(), []backend.Commit{next(other, otherToken, 3), c})
						if err = results[1].Err; results[0].Err != nil {
							t.Error(results[0].Err)
						}
					}
					rows := f.rowsOf(t, "r")
					if test.fails {
						if !errors.Is(err, backend.ErrEventConflict) || !slices.Equal(rows, []string{"1-2"}) {
							t.Errorf("%v, rows %v", err, rows)
						}
						return
					}
					if err != nil || !slices.Equal(rows, test.rows) {
						t.Errorf("%v, rows %v", err, rows)
					}
					want := []int64{1, 2, 3, 4}[:test.last]
					if got := seqsOf(t, f.store, "r"); !slices.Equal(got, want) {
						t.Errorf("events %v", got)
					}
					if found := auditAll(t, f.store); len(found) > 0 {
						t.Errorf("%+v", found)
					}
				})
			}
		}
	}
}

func firstOf(id string) run.Event { return draft(id).Events[0] }

func closingOf(id string, seq int64) run.Event {
	in := draft(id)
	return in.Events[slices.IndexFunc(in.Events, func(e run.Event) bool { return e.Seq == seq })]
}

// TestEventsFillAGap (E1, E2): events may be stored below others, and between two rows; what lies between is
// not there.
func TestEventsFillAGap(t *testing.T) {
	t.Parallel()
	f := newFixture(t, direct(t), pgtest.Schema(t))
	d, token := started(t, f.store, "r")
	far := next(d, token, 11, worked("r", 10, "a"))
	if _, err := f.store.Commit(t.Context(), backend.System(), far); err != nil {
		t.Fatal(err)
	}
	between := next(far.Document, token, 7, worked("r", 5, "a"), worked("r", 6, "a"))
	if _, err := f.store.Commit(t.Context(), backend.System(), between); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{1, 2, 5, 6, 7, 10, 11}, seqsOf(t, f.store, "r")); diff != "" {
		t.Error(diff)
	}
	for seq := int64(1); seq < 14; seq++ {
		e, err := f.store.FetchEvent(t.Context(), backend.System(), "r", seq)
		if there := slices.Contains([]int64{1, 2, 5, 6, 7, 10, 11}, seq); there && (err != nil || e.Seq != seq) || !there && !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("event %d: %d, %v", seq, e.Seq, err)
		}
	}
}

// TestPinnedStoresWriteARowForEachEvent: what a store that is pinned to format 1 writes, the release before
// reads, in each way of writing; a history of both kinds of rows reads whole, page by page, and is sound.
func TestPinnedStoresWriteARowForEachEvent(t *testing.T) {
	t.Parallel()
	a := direct(t)
	a.opts.WriteFormat = 1
	f := newFixture(t, a, pgtest.Schema(t))
	newest, err := postgres.New(a.pool(), postgres.Options{Schema: f.schema, Now: f.clock})
	if err != nil {
		t.Fatal(err)
	}
	defer newest.Close()
	d, token := started(t, f.store, "r")
	e, second := started(t, f.store, "s")
	a3 := next(d, token, 4, worked("r", 3, "a"))
	for _, result := range f.store.Commits(t.Context(), backend.System(), []backend.Commit{a3, next(e, second, 4, worked("s", 3, "a"))}) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
	if rows := strings.Join(append(f.rowsOf(t, "r"), f.rowsOf(t, "s")...), " "); rows != "1-1 2-2 3-3 4-4 1-1 2-2 3-3 4-4" {
		t.Errorf("a pinned store leaves %s", rows)
	}
	b := next(a3.Document, token, 6, worked("r", 5, "a"))
	if _, err := newest.Commit(t.Context(), backend.System(), b); err != nil {
		t.Fatal(err)
	}
	c := next(b.Document, token, 8, worked("r", 7, "a"))
	if _, err := f.store.Commit(t.Context(), backend.System(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := newest.Commit(t.Context(), backend.System(), next(c.Document, token, 10, worked("r", 9, "a"))); err != nil {
		t.Fatal(err)
	}
	if rows := strings.Join(f.rowsOf(t, "r"), " "); rows != "1-1 2-2 3-3 4-4 5-6 7-7 8-8 9-10" {
		t.Errorf("the history is %s", rows)
	}
	for limit := 1; limit < 12; limit++ {
		var seqs []int64
		for after, more := int64(0), true; more; {
			page, err := f.store.ListEvents(t.Context(), backend.System(), "r", backend.EventQuery{After: after, Limit: limit})
			if err != nil || page.Oldest != 1 || page.Latest != 10 || len(page.Events) > limit {
				t.Fatalf("%+v, %v", page, err)
			}
			for _, e := range page.Events {
				seqs = append(seqs, e.Seq)
			}
			after, more = page.Next, page.HasMore
		}
		if !slices.Equal(seqs, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) {
			t.Errorf("pages of %d list %v", limit, seqs)
		}
	}
	for seq := int64(1); seq <= 10; seq++ {
		if e, err := f.store.FetchEvent(t.Context(), backend.System(), "r", seq); err != nil || e.Seq != seq {
			t.Errorf("event %d is %d, %v", seq, e.Seq, err)
		}
	}
	if last, err := f.store.LatestEvent(t.Context(), backend.System(), "r"); err != nil || last.Seq != 10 {
		t.Errorf("%+v, %v", last, err)
	}
	if found := auditAll(t, newest); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}
