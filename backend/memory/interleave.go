package memory

import (
	"cmp"
	"slices"

	"github.com/belay-run/belay/claim"
)

// turn is an owner in one interleaved claim.
type turn struct {
	owner *owner
	lanes [classes][]*lane // those with a run that is due
	walks [classes]*walk
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
	at := make(map[*owner]int)
	var turns []turn
	for class := range classes {
		heap := &c.store.due.lanes[class]
		admit := c.admit(class)
		var visit func(i int)
		visit = func(i int) {
			if i >= len(heap.lanes) || heap.head(i).at > c.until(class) {
				return
			}
			if l := heap.lanes[i]; admit(l) {
				k, known := at[l.owner]
				if !known {
					k = len(turns)
					at[l.owner] = k
					turns = append(turns, turn{owner: l.owner})
				}
				turns[k].lanes[class] = append(turns[k].lanes[class], l)
			}
			visit(2*i + 1)
			visit(2*i + 2)
		}
		visit(0)
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.owner.turn, b.owner.turn) })
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
		t.walks[class] = c.store.due.overLanes(class, c.until(class), c.admit(class), t.lanes[class])
	}
	return t.walks[class]
}
