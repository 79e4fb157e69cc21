package memory

import (
	"cmp"
	"slices"

	"github.com/belay-run/belay/claim"
)

// turn is an owner in one interleaved claim.
type turn struct {
	lanes []dueLane // with a run that is due
	walks [classes]*walk
}

// dueLane is a lane whose first run of a class is due.
type dueLane struct {
	lane  *lane
	class int
}

// gatherInterleaved adds runs breadth first over owners, who are served in the order of
// their turns (clause K5): each one's oldest, then each one's second, until the limit is
// reached; and one of a class that nobody has had yet, which Select then reserves for.
func (c *candidates) gatherInterleaved() {
	turns := c.turns()
	if c.policy.Limit == 1 && c.policy.Prefer != claim.NoClass {
		preferred := byWake
		if c.policy.Prefer == claim.Expired {
			preferred = byClaim
		}
		if !c.addFirst(turns, preferred) {
			c.addFirst(turns, 1-preferred)
		}
		return
	}
	var had [classes]bool
	for more := true; more && len(c.rows) < c.policy.Limit; {
		more = false
		for i := range turns {
			if len(c.rows) == c.policy.Limit {
				break
			}
			if class, ok := c.addOldest(&turns[i]); ok {
				had[class], more = true, true
			}
		}
	}
	if c.policy.Limit < 2 {
		return
	}
	for class := range classes {
		if !had[class] {
			c.addFirst(turns, class)
		}
	}
}

// turns lists the owners with a run that is due, who waits longest first.
func (c *candidates) turns() []turn {
	var due []dueLane
	for class := range classes {
		heap := &c.store.due.lanes[class]
		admit, until := c.admit(class), c.until(class)
		var visit func(i int)
		visit = func(i int) {
			if i >= len(heap.lanes) || heap.head(i).at > until {
				return
			}
			if l := heap.lanes[i]; admit == nil || admit(l) {
				due = append(due, dueLane{lane: l, class: class})
			}
			visit(2*i + 1)
			visit(2*i + 2)
		}
		visit(0)
	}
	// No two owners share a turn, so this puts the lanes of each beside each other.
	slices.SortFunc(due, func(a, b dueLane) int { return cmp.Compare(a.lane.owner.turn, b.lane.owner.turn) })
	var turns []turn
	for from, i := 0, 1; i <= len(due); i++ {
		if i == len(due) || due[i].lane.owner != due[from].lane.owner {
			turns = append(turns, turn{lanes: due[from:i]})
			from = i
		}
	}
	return turns
}

// addOldest adds the oldest free run of an owner, of either class.
func (c *candidates) addOldest(t *turn) (class int, ok bool) {
	for {
		wake, ready := c.walk(t, byWake).peek()
		claimed, expired := c.walk(t, byClaim).peek()
		switch {
		case !ready && !expired:
			return 0, false
		case ready && (!expired || wake.before(claimed)):
			class = byWake
		default:
			class = byClaim
		}
		if e, _ := c.walk(t, class).next(); c.add(e.row, class) {
			return class, true
		}
	}
}

// addFirst adds the oldest free run of one class of the first owner who has one.
func (c *candidates) addFirst(turns []turn, class int) bool {
	for i := range turns {
		if !slices.ContainsFunc(turns[i].lanes, func(l dueLane) bool { return l.class == class }) {
			continue
		}
		before := len(c.rows)
		c.gatherOldest(c.walk(&turns[i], class), class, 1)
		if len(c.rows) > before {
			return true
		}
	}
	return false
}

func (c *candidates) walk(t *turn, class int) *walk {
	if t.walks[class] == nil {
		t.walks[class] = c.store.due.overLanes(class, c.until(class), c.admit(class), t.lanes)
	}
	return t.walks[class]
}
