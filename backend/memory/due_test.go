package memory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
)

// instant is a moment few microseconds after a fixed one, so that ties are common.
func instant(micro int) time.Time {
	return time.UnixMicro(1_900_000_000_000_000 + int64(micro)).UTC()
}

// check reports a violated invariant of the index.
func (x *dueIndex) check() error {
	queued, claims := map[*owner]int{}, map[*owner]int{}
	for class := range classes {
		heap := &x.lanes[class]
		if heap.class != class {
			return fmt.Errorf("the heap of class %d says it is of %d", class, heap.class)
		}
		for i, l := range heap.lanes {
			if l.pos[class] != i || l.runs[class].count == 0 {
				return fmt.Errorf("class %d: lane %d says it is at %d, with %d runs", class, i, l.pos[class], l.runs[class].count)
			}
			if i > 0 && heap.head(i).before(heap.head((i-1)/2)) {
				return fmt.Errorf("class %d: lane %d stands below a later one", class, i)
			}
			var last entry
			for k, e := range slices.Concat(l.runs[class].chunks...) {
				if e.row.due != (place{lane: l, class: class, at: e.at}) {
					return fmt.Errorf("class %d: run %s at %d says it is at %+v", class, e.row.id, e.at, e.row.due)
				}
				if k > 0 && !last.before(e) {
					return fmt.Errorf("class %d: run %s stands behind a later one", class, e.row.id)
				}
				last = e
				queued[l.owner]++
				if class == byClaim {
					claims[l.owner]++
				}
			}
		}
	}
	for o, n := range queued {
		if o.queued != n || o.claims != claims[o] {
			return fmt.Errorf("%v counts %d queued and %d claims, it has %d and %d", o.id, o.queued, o.claims, n, claims[o])
		}
	}
	return nil
}

// lanes makes lanes of a few owners, with a few graphs each.
func lanes(owners, graphs int) []*lane {
	var all []*lane
	for o := range owners {
		whose := &owner{id: backend.Tenant(fmt.Sprintf("t%d", o))}
		for g := range graphs {
			all = append(all, &lane{owner: whose, ref: graph.Ref{ID: fmt.Sprintf("g%d", g), Hash: "h"}})
		}
	}
	return all
}

func TestTheDueIndexHoldsEachRunWhereItsStateSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x dueIndex
		x.lanes[byClaim].class = byClaim
		all := lanes(rapid.IntRange(1, 4).Draw(t, "owners"), rapid.IntRange(1, 3).Draw(t, "graphs"))
		rows := make([]*row, rapid.IntRange(1, 40).Draw(t, "runs"))
		for i := range rows {
			rows[i] = &row{id: fmt.Sprintf("r%02d", i)}
		}
		want := make(map[*row]entry)
		where := make(map[*row]place)
		for range rapid.IntRange(1, 120).Draw(t, "changes") {
			r := rapid.SampledFrom(rows).Draw(t, "run")
			l := rapid.SampledFrom(all).Draw(t, "lane")
			if old, there := where[r]; there && old.lane.owner != l.owner {
				l = old.lane // the owner of a run never changes
			}
			at := instant(rapid.IntRange(0, 5).Draw(t, "at"))
			var st claim.State
			switch rapid.SampledFrom([]string{"wake", "claim", "none"}).Draw(t, "state") {
			case "wake":
				st.Wake = at
				where[r] = place{lane: l, class: byWake}
			case "claim":
				st.Token, st.ClaimedAt = "t", at
				where[r] = place{lane: l, class: byClaim}
			default:
				delete(where, r)
			}
			x.set(r, l, &st)
			want[r] = entry{at: micros(at), row: r}
			if err := x.check(); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range rows {
			is := r.due
			is.at = 0
			if there := where[r]; is.lane != there.lane || there.lane != nil && is.class != there.class {
				t.Errorf("run %s stands at %+v, want %+v", r.id, is, there)
			}
		}
		// The walk is the order, whatever it leaves out.
		until := instant(rapid.IntRange(-1, 6).Draw(t, "until"))
		out := rapid.SampledFrom(append(all, nil)).Draw(t, "left out")
		for class := range classes {
			var order []string
			for _, e := range slices.SortedFunc(maps.Values(want), func(a, b entry) int {
				return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.row.id, b.row.id))
			}) {
				if p, there := where[e.row]; there && p.class == class && p.lane != out && e.at <= micros(until) {
					order = append(order, e.row.id)
				}
			}
			admit := func(l *lane) bool { return l != out }
			var each []dueLane
			for _, l := range all {
				each = append(each, dueLane{lane: l, class: byWake}, dueLane{lane: l, class: byClaim})
			}
			for name, w := range map[string]*walk{
				"over all":   x.over(class, micros(until), admit),
				"over lanes": x.overLanes(class, micros(until), admit, each),
			} {
				var walked []string
				for e, ok := w.next(); ok; e, ok = w.next() {
					walked = append(walked, e.row.id)
				}
				if !slices.Equal(walked, order) {
					t.Errorf("class %d %s: walked %v, the order is %v", class, name, walked, order)
				}
			}
		}
	})
}

func TestAFinishedRunIsInNoIndexThatClaimingLooksAt(t *testing.T) {
	var x dueIndex
	x.lanes[byClaim].class = byClaim
	l := lanes(1, 1)[0]
	for i := range 100 {
		r := &row{id: fmt.Sprintf("r%02d", i)}
		x.set(r, l, &claim.State{Wake: instant(i)})
		x.set(r, l, &claim.State{Token: "t", ClaimedAt: instant(i)})
		x.set(r, l, &claim.State{})
	}
	if n := l.runs[byWake].count + l.runs[byClaim].count + len(x.lanes[byWake].lanes) + len(x.lanes[byClaim].lanes); n != 0 {
		t.Errorf("the index still holds %d", n)
	}
}
