package memory

import (
	"sync"

	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
)

// dueIndex orders the runs that may be claimed: those with a wake by their wake, those
// with a claim by their claimed-at, each then by id. Waiting, poisoned and finished runs
// are in neither order, so claiming costs the same whatever the history.
//
// Runs are kept in lanes, one for each stored graph version and so for each owner, and
// an order over all runs is a heap of lanes, each of which is an ordered list of runs. A claim can
// so leave out an owner or a graph without looking at its runs one by one. Runs are claimed from the front
// of a lane and become due or claimed at its end, nearly always, and there a list costs next to nothing.
type dueIndex struct {
	mu    sync.Mutex
	lanes [classes]laneHeap
	// turns numbers the turns that owners had under interleaving.
	turns uint64
}

// The two orders.
const (
	byWake = iota
	byClaim
	classes
)

// place is where a run stands in the index.
type place struct {
	lane  *lane
	class int // byWake or byClaim
	at    int64
}

// entry is a run in an order, with the instant it stands there by.
type entry struct {
	at  int64
	row *row
}

func (a entry) before(b entry) bool {
	return a.at < b.at || a.at == b.at && a.row.id < b.row.id
}

// lane holds the due runs of one graph version.
type lane struct {
	owner *owner
	ref   graph.Ref
	runs  [classes]ordered
	pos   [classes]int // in the heaps of lanes, where runs has any
}

// set puts a run where its claim state says. The index is locked.
func (x *dueIndex) set(r *row, l *lane, st *claim.State) {
	switch {
	case st.Token != "":
		x.put(r, l, byClaim, micros(st.ClaimedAt))
	case !st.Wake.IsZero():
		x.put(r, l, byWake, micros(st.Wake))
	default:
		x.remove(r)
	}
}

func (x *dueIndex) put(r *row, l *lane, class int, at int64) {
	if r.due.lane == l && r.due.class == class {
		if r.due.at != at {
			x.take(r)
			x.enter(r, l, class, at)
		}
		return
	}
	x.remove(r)
	x.enter(r, l, class, at)
	if l.owner.queued == 0 {
		// Behind everybody who waits already.
		x.turns++
		l.owner.turn = x.turns
	}
	l.owner.queued++
	if class == byClaim {
		l.owner.claims++
	}
}

func (x *dueIndex) remove(r *row) {
	l, class := r.due.lane, r.due.class
	if l == nil {
		return
	}
	x.take(r)
	r.due = place{}
	l.owner.queued--
	if class == byClaim {
		l.owner.claims--
	}
}

// enter puts a run into an order.
func (x *dueIndex) enter(r *row, l *lane, class int, at int64) {
	r.due = place{lane: l, class: class, at: at}
	e := entry{at: at, row: r}
	runs := &l.runs[class]
	runs.insert(e)
	if runs.count == 1 {
		x.lanes[class].push(l)
	} else if runs.first() == e {
		x.lanes[class].fix(l.pos[class])
	}
}

// take takes a run out of the order in which it is.
func (x *dueIndex) take(r *row) {
	l, class := r.due.lane, r.due.class
	e := entry{at: r.due.at, row: r}
	runs := &l.runs[class]
	first := runs.first() == e
	if first && runs.count == 1 {
		x.lanes[class].remove(l.pos[class])
	}
	runs.remove(e)
	if first && runs.count > 0 {
		x.lanes[class].fix(l.pos[class])
	}
}

// laneHeap is a binary heap of the lanes that have runs of one class, by their heads.
type laneHeap struct {
	class int
	lanes []*lane
}

func (h *laneHeap) head(i int) entry { return h.lanes[i].runs[h.class].first() }

func (h *laneHeap) push(l *lane) {
	h.lanes = append(h.lanes, l)
	l.pos[h.class] = len(h.lanes) - 1
	h.fix(len(h.lanes) - 1)
}

func (h *laneHeap) remove(i int) {
	last := len(h.lanes) - 1
	h.swap(i, last)
	h.lanes[last] = nil
	h.lanes = h.lanes[:last]
	if i < last {
		h.fix(i)
	}
}

// fix moves the lane at i to where its head belongs.
func (h *laneHeap) fix(i int) {
	for i > 0 && h.head(i).before(h.head((i-1)/2)) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		child := 2*i + 1
		if child >= len(h.lanes) {
			return
		}
		if right := child + 1; right < len(h.lanes) && h.head(right).before(h.head(child)) {
			child = right
		}
		if !h.head(child).before(h.head(i)) {
			return
		}
		h.swap(i, child)
		i = child
	}
}

func (h *laneHeap) swap(i, j int) {
	h.lanes[i], h.lanes[j] = h.lanes[j], h.lanes[i]
	h.lanes[i].pos[h.class], h.lanes[j].pos[h.class] = i, j
}
