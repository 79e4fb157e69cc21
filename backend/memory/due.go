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
// an order over all runs is a heap of lanes, each of which is a heap of runs. A claim can
// so leave out an owner or a graph without looking at its runs one by one.
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
	pos   int
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
	runs  [classes]runHeap
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
	e := entry{at: at, row: r}
	if r.due.lane == l && r.due.class == class {
		l.runs[class].move(r.due.pos, e)
		x.lanes[class].fix(l.pos[class])
		return
	}
	x.remove(r)
	r.due.lane, r.due.class = l, class
	l.runs[class].push(e)
	if len(l.runs[class]) == 1 {
		x.lanes[class].push(l)
	} else if r.due.pos == 0 {
		x.lanes[class].fix(l.pos[class])
	}
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
	l, class, pos := r.due.lane, r.due.class, r.due.pos
	if l == nil {
		return
	}
	l.runs[class].remove(pos)
	if len(l.runs[class]) == 0 {
		x.lanes[class].remove(l.pos[class])
	} else if pos == 0 {
		x.lanes[class].fix(l.pos[class])
	}
	r.due.lane = nil
	l.owner.queued--
	if class == byClaim {
		l.owner.claims--
	}
}

// runHeap is a binary heap of runs that knows where each one stands.
type runHeap []entry

func (h *runHeap) push(e entry) {
	*h = append(*h, e)
	h.up(len(*h)-1, e)
}

func (h *runHeap) remove(i int) {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = entry{}
	*h = (*h)[:last]
	if i < last {
		h.move(i, e)
	}
}

// move puts e at i, and then where it belongs.
func (h *runHeap) move(i int, e entry) {
	if i > 0 && e.before((*h)[(i-1)/2]) {
		h.up(i, e)
	} else {
		h.down(i, e)
	}
}

func (h *runHeap) up(i int, e entry) {
	heap := *h
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(heap[parent]) {
			break
		}
		heap[i] = heap[parent]
		heap[i].row.due.pos = i
		i = parent
	}
	heap[i] = e
	e.row.due.pos = i
}

func (h *runHeap) down(i int, e entry) {
	heap := *h
	for {
		child := 2*i + 1
		if child >= len(heap) {
			break
		}
		if right := child + 1; right < len(heap) && heap[right].before(heap[child]) {
			child = right
		}
		if !heap[child].before(e) {
			break
		}
		heap[i] = heap[child]
		heap[i].row.due.pos = i
		i = child
	}
	heap[i] = e
	e.row.due.pos = i
}

// laneHeap is a binary heap of the lanes that have runs of one class, by their heads.
type laneHeap struct {
	class int
	lanes []*lane
}

func (h *laneHeap) head(i int) entry { return h.lanes[i].runs[h.class][0] }

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
