package memory

// walk goes through the due runs of one class in their order, without changing the
// index: through the lists of several lanes at once, as far as the caller asks.
type walk struct {
	index *dueIndex
	class int
	until int64            // the last instant that is due
	admit func(*lane) bool // asked for each run, unless nil; a lane that is not admitted is left out as a whole
	nodes []node           // what comes next is one of these: a heap
}

// node is a run that was reached but not yet given.
type node struct {
	entry
	lane *lane
	// inner is its position in its lane's list. outer is its lane's position in the heap
	// of lanes if the lane was reached from there, else -1.
	inner cursor
	outer int
}

// over begins a walk over all lanes.
func (x *dueIndex) over(class int, until int64, admit func(*lane) bool) *walk {
	w := &walk{index: x, class: class, until: until, admit: admit}
	w.reachLane(0)
	return w
}

// overLanes begins a walk over some lanes: those of them that are of the class.
func (x *dueIndex) overLanes(class int, until int64, admit func(*lane) bool, lanes []dueLane) *walk {
	w := &walk{index: x, class: class, until: until, admit: admit}
	for _, l := range lanes {
		if l.class == class {
			w.reach(l.lane, cursor{}, -1)
		}
	}
	return w
}

// peek is the next run; ok is false when no more are due.
func (w *walk) peek() (e entry, ok bool) {
	for w.admit != nil && len(w.nodes) > 0 && !w.admit(w.nodes[0].lane) {
		n := w.pop()
		w.reachLanesBelow(n)
	}
	if len(w.nodes) == 0 {
		return entry{}, false
	}
	return w.nodes[0].entry, true
}

// next is the next run, and moves past it.
func (w *walk) next() (e entry, ok bool) {
	if e, ok = w.peek(); !ok {
		return entry{}, false
	}
	n := w.pop()
	w.reachLanesBelow(n)
	w.reach(n.lane, n.lane.runs[w.class].after(n.inner), -1)
	return e, true
}

func (w *walk) reachLanesBelow(n node) {
	if n.outer >= 0 {
		w.reachLane(2*n.outer + 1)
		w.reachLane(2*n.outer + 2)
	}
}

func (w *walk) reachLane(outer int) {
	if lanes := w.index.lanes[w.class].lanes; outer < len(lanes) {
		w.reach(lanes[outer], cursor{}, outer)
	}
}

// reach adds a run of a lane, if there is one at the position and it is due.
func (w *walk) reach(l *lane, inner cursor, outer int) {
	e, ok := l.runs[w.class].get(inner)
	if !ok || e.at > w.until {
		return
	}
	w.nodes = append(w.nodes, node{entry: e, lane: l, inner: inner, outer: outer})
	i := len(w.nodes) - 1
	for i > 0 && w.nodes[i].before(w.nodes[(i-1)/2].entry) {
		w.nodes[i], w.nodes[(i-1)/2] = w.nodes[(i-1)/2], w.nodes[i]
		i = (i - 1) / 2
	}
}

func (w *walk) pop() node {
	top := w.nodes[0]
	last := len(w.nodes) - 1
	w.nodes[0] = w.nodes[last]
	w.nodes[last] = node{}
	w.nodes = w.nodes[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return top
		}
		if right := child + 1; right < last && w.nodes[right].before(w.nodes[child].entry) {
			child = right
		}
		if !w.nodes[child].before(w.nodes[i].entry) {
			return top
		}
		w.nodes[i], w.nodes[child] = w.nodes[child], w.nodes[i]
		i = child
	}
}
