package memory

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestAnOrderedListIsASortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list ordered
		var want []entry
		spread := rapid.SampledFrom([]int64{3, 100, 1 << 40}).Draw(t, "spread")
		// Most steps add a run at the end, as in life, so that chunks fill and split.
		next := 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"many", "many", "one", "remove", "remove from the front"}).Draw(t, "step") {
			case "many":
				for range rapid.IntRange(1, 2*chunkSize).Draw(t, "n") {
					e := entry{at: min(int64(next), spread), row: &row{id: fmt.Sprintf("r%07d", next)}}
					next++
					list.insert(e)
					i, _ := slices.BinarySearchFunc(want, e, entry.compare)
					want = slices.Insert(want, i, e)
				}
			case "one":
				e := entry{at: rapid.Int64Range(-1, spread+1).Draw(t, "at"), row: &row{id: fmt.Sprintf("s%07d", next)}}
				next++
				list.insert(e)
				i, _ := slices.BinarySearchFunc(want, e, entry.compare)
				want = slices.Insert(want, i, e)
			case "remove from the front":
				n := min(rapid.IntRange(1, 2*chunkSize).Draw(t, "n"), len(want))
				for _, e := range want[:n] {
					if list.first() != e {
						t.Fatalf("the first is %+v, want %+v", list.first(), e)
					}
					list.remove(e)
				}
				want = want[n:]
			case "remove":
				for range rapid.IntRange(1, chunkSize).Draw(t, "n") {
					if len(want) == 0 {
						break
					}
					i := rapid.IntRange(0, len(want)-1).Draw(t, "which")
					list.remove(want[i])
					list.remove(want[i]) // what is not there is not removed
					want = slices.Delete(want, i, i+1)
				}
			}
		}
		if list.count != len(want) {
			t.Fatalf("it counts %d entries of %d", list.count, len(want))
		}
		for i, c := range list.chunks {
			if len(c) == 0 || len(c) > chunkSize {
				t.Errorf("chunk %d has %d entries", i, len(c))
			}
		}
		if got := slices.Concat(list.chunks...); !slices.Equal(got, want) {
			t.Fatalf("the list is not the sorted slice: %d entries, want %d", len(got), len(want))
		}
		at := cursor{}
		for i, e := range want {
			if got, ok := list.get(at); !ok || got != e {
				t.Fatalf("at %d the cursor is at %+v, %t, want %+v", i, got, ok, e)
			}
			at = list.after(at)
		}
		if e, ok := list.get(at); ok {
			t.Fatalf("past the end the cursor is at %+v", e)
		}
		n := rapid.IntRange(0, 2*chunkSize).Draw(t, "page")
		before := entry{at: rapid.Int64Range(-1, spread+1).Draw(t, "before"), row: &row{id: "r0000500"}}
		i, _ := slices.BinarySearchFunc(want, before, entry.compare)
		page := slices.Clone(want[max(0, i-n):i])
		slices.Reverse(page)
		if got := list.before(before, n); !slices.Equal(got, page) {
			t.Errorf("the page before has %d entries, want %d", len(got), len(page))
		}
	})
}
