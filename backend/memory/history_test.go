package memory

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/run"
)

func TestAHistoryIsWhatItsCommitsAppended(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h history
		want := map[int64]run.Event{}
		var ids []checkpoint.ID
		for i := range rapid.IntRange(1, 12).Draw(t, "commits") {
			id := checkpoint.ID(fmt.Sprintf("c%d", i))
			// Gaps are legal, and may be filled later; a stored event may come again.
			seqs := rapid.SliceOfNDistinct(rapid.Int64Range(1, 40), 0, 5, rapid.ID).Draw(t, "sequences")
			slices.Sort(seqs)
			var events []run.Event
			conflict := false
			for _, seq := range seqs {
				e := run.Event{Run: "a", Seq: seq, Type: run.EventNodeCompleted, At: instant(0), Step: rapid.Int64Range(1, 2).Draw(t, "step")}
				if stored, there := want[seq]; there && stored.Step != e.Step {
					conflict = true
				}
				events = append(events, e)
			}
			before := slices.Clone(h)
			grown, err := h.grown(id, events)
			if diff := cmp.Diff(before, h, cmp.AllowUnexported(part{})); diff != "" {
				t.Fatalf("the older history was modified:\n%s", diff)
			}
			if conflict {
				if !errors.Is(err, backend.ErrEventConflict) {
					t.Fatalf("other content under a stored sequence answered %v", err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			h = grown
			ids = append(ids, id)
			for _, e := range events {
				want[e.Seq] = e
			}
		}

		var sorted []run.Event
		for seq := range int64(41) {
			if e, there := want[seq]; there {
				sorted = append(sorted, e)
			}
		}
		if h.count() != len(sorted) {
			t.Errorf("it counts %d events of %d", h.count(), len(sorted))
		}
		after, n := rapid.Int64Range(0, 41).Draw(t, "after"), rapid.IntRange(1, 50).Draw(t, "limit")
		var page []run.Event
		for _, e := range sorted {
			if e.Seq > after && len(page) < n {
				page = append(page, e)
			}
		}
		if diff := cmp.Diff(page, h.after(after, n)); diff != "" {
			t.Errorf("%d events after %d (- want, + got):\n%s", n, after, diff)
		}
		var oldest, last int64
		if len(sorted) > 0 {
			oldest, last = sorted[0].Seq, sorted[len(sorted)-1].Seq
		}
		if h.oldest() != oldest || h.last() != last {
			t.Errorf("it goes from %d to %d, want %d to %d", h.oldest(), h.last(), oldest, last)
		}
		for _, id := range ids {
			if !h.holds(id) {
				t.Errorf("commit %s is not found", id)
			}
		}
		if h.holds("another") {
			t.Error("a commit that never was is found")
		}
	})
}
