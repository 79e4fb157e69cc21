package sqlite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// rowsOf are the rows of events of the only run, as first-last and the checkpoint id's presence.
func rowsOf(t *testing.T, s *Store) (rows []string) {
	t.Helper()
	must(t, s.readers.use(context.Background(), func(c *conn) error {
		return c.read(context.Background(), "select seq, body, checkpoint_id from belay_events order by seq", func(r row) error {
			first, err := backend.FirstEvent("a", r.int(0), r.blob(1))
			rows = append(rows, fmt.Sprintf("%d-%d %v", first, r.int(0), r.text(2) != ""))
			return err
		})
	}))
	return rows
}

// reopened is another store on the file.
func reopened(t *testing.T, s *Store, opts Options) *Store {
	t.Helper()
	opts.SharedDirectory = true
	again, err := Open(context.Background(), s.Path(), opts)
	must(t, err)
	t.Cleanup(func() { must(t, again.Close()) })
	return again
}

// TestEventsOfACommitShareARow, unless the store is pinned to the format of releases that read one
// event a row; rows of both kinds are read alike, whoever wrote them.
func TestEventsOfACommitShareARow(t *testing.T) {
	ctx := context.Background()
	packing := openStore(t, Options{})
	pinned := reopened(t, packing, Options{WriteFormat: 1})
	publishGraph(t, packing)
	d := insertRun(t, packing, "a")
	lease := claimRun(t, packing, "a")
	want := opening("a").Events
	for _, s := range []*Store{pinned, packing, pinned} {
		p := next(d, false)
		_, err := s.Commit(ctx, backend.System(), commitOf(lease, p))
		must(t, err)
		d, want = p.Document, append(want, p.Events...)
	}
	rows := []string{"1-2 true", "3-3 false", "4-4 true", "5-6 true", "7-7 false", "8-8 true"}
	if diff := cmp.Diff(rows, rowsOf(t, packing)); diff != "" {
		t.Error(diff)
	}
	for _, s := range []*Store{packing, pinned} {
		for _, e := range want {
			got, err := s.FetchEvent(ctx, backend.System(), "a", e.Seq)
			must(t, err)
			if diff := cmp.Diff(e, got); diff != "" {
				t.Errorf("event %d:\n%s", e.Seq, diff)
			}
		}
		if _, err := s.FetchEvent(ctx, backend.System(), "a", 9); !errors.Is(err, backend.ErrNotFound) {
			t.Errorf("behind the last: %v", err)
		}
	}
}

// TestOverlappingEventsAreComparedOneByOne: what is stored already, in whichever row, is no change and is
// left out; what differs is a conflict, and nothing of that commit stays.
func TestOverlappingEventsAreComparedOneByOne(t *testing.T) {
	ctx := context.Background()
	for _, format := range []int{0, 1} {
		s := openStore(t, Options{WriteFormat: format})
		publishGraph(t, s)
		d := insertRun(t, s, "a")
		first := opening("a").Events
		lease := claimRun(t, s, "a")
		p := next(d, false)
		fresh := p.Events
		p.Events = append([]run.Event{first[1]}, fresh...)
		_, err := s.Commit(ctx, backend.System(), commitOf(lease, p))
		must(t, err)
		want := []string{"1-2 true", "3-4 true"}
		if format == 1 {
			want = []string{"1-1 false", "2-2 true", "3-3 false", "4-4 true"}
		}
		if diff := cmp.Diff(want, rowsOf(t, s)); diff != "" {
			t.Error(diff)
		}
		p = next(p.Document, false)
		other := fresh[0]
		other.Node = "other"
		p.Events = append([]run.Event{other}, p.Events...)
		if _, err := s.Commit(ctx, backend.System(), commitOf(lease, p)); !errors.Is(err, backend.ErrEventConflict) {
			t.Errorf("another event under a stored sequence: %v", err)
		}
		if diff := cmp.Diff(want, rowsOf(t, s)); diff != "" {
			t.Error(diff)
		}
	}
}

// TestPrunedEventsAreCountedOneByOne, in a dry run as well.
func TestPrunedEventsAreCountedOneByOne(t *testing.T) {
	s := openStore(t, Options{})
	publishGraph(t, s)
	finishedRun(t, s, "a", 3)
	for _, dry := range []bool{true, false} {
		got, err := s.Prune(context.Background(), backend.PrunePolicy{Before: testClock.Add(time.Hour), Limit: 1, DryRun: dry})
		must(t, err)
		if diff := cmp.Diff(backend.Pruned{Runs: 1, Events: 7}, got); diff != "" {
			t.Errorf("dry %v:\n%s", dry, diff)
		}
	}
}
