package claim

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Candidate is one due run, as Select sees it.
type Candidate struct {
	ID    string
	Owner Owner
	Class Class     // Ready or Expired
	At    time.Time // eligible-at
	// Turn orders owners under Interleave: a lower turn is served first, then
	// (eligible-at, id) decides. It is the same for all candidates of one owner. A
	// backend that sets it to when the owner was last served (any growing number,
	// zero for never) rotates over owners across calls (clause K5).
	Turn uint64
}

// Select is the selection rule (clauses K2 and K5): which candidates one claim
// takes, as indexes into candidates, in serving order. The order of candidates
// has no influence on which are taken; other classes than Ready and Expired are
// ignored.
//
// With Limit >= 2 the head of each class that has a candidate is served first;
// with Limit 1 the preferred class goes first and falls through; otherwise
// (eligible-at, id) decides, after owners under Interleave. There, the class that
// would be left out takes the last place of the owner it belongs to, if that owner
// has one, so that both classes are served and still no owner gets two outcomes
// before every owner has one.
//
// held says how many claims an owner holds already (nil: none), and is consulted
// only with an OwnerCap: as many ready candidates as fit under the cap are
// considered. An expired candidate is already counted there, so it is always
// considered, or its owner could stay above a lowered cap for ever.
func Select(candidates []Candidate, p Policy, held func(Owner) int) []int {
	s := selection{candidates: candidates, policy: p}
	s.consider()
	if p.Fairness == OldestFirst && p.OwnerCap == 0 {
		s.keepOldest()
	}
	s.sortByAge()
	if p.OwnerCap > 0 {
		s.capOwners(held)
	}
	if p.Limit == 1 {
		s.preferClass()
	}
	if p.Fairness == Interleave {
		s.interleave()
	}
	return s.take()
}

// selection is a list of candidates in the making of one Select.
type selection struct {
	candidates []Candidate
	policy     Policy
	order      []place
}

// place is a candidate's place in the order: rank and turn decide, then age.
type place struct{ index, rank, age int }

func (s *selection) at(i int) *Candidate { return &s.candidates[s.order[i].index] }

func (s *selection) consider() {
	s.order = make([]place, 0, len(s.candidates))
	for i := range s.candidates {
		if c := s.candidates[i].Class; c == Ready || c == Expired {
			s.order = append(s.order, place{index: i})
		}
	}
}

// keepOldest drops what age alone rules out, all but the oldest Limit of each
// class, without sorting everything: a class is sorted and cut each time it has
// grown to twice what is kept, and what is younger than the last cut is passed over.
func (s *selection) keepOldest() {
	limit := s.policy.Limit
	if limit < 1 || len(s.order)/4 < limit {
		return
	}
	room := make([]place, 4*limit)
	kept := [Expired + 1][]place{Ready: room[: 0 : 2*limit], Expired: room[2*limit : 2*limit]}
	var youngest [Expired + 1]*place
	for _, at := range s.order {
		class := s.candidates[at.index].Class
		if youngest[class] != nil && s.byAge(at, *youngest[class]) > 0 {
			continue
		}
		kept[class] = append(kept[class], at)
		if len(kept[class]) == 2*limit {
			slices.SortFunc(kept[class], s.byAge)
			kept[class] = kept[class][:limit]
			youngest[class] = &kept[class][limit-1]
		}
	}
	s.order = append(append(s.order[:0], kept[Ready]...), kept[Expired]...)
}

func (s *selection) byAge(a, b place) int {
	x, y := &s.candidates[a.index], &s.candidates[b.index]
	if c := x.At.Compare(y.At); c != 0 {
		return c
	}
	return strings.Compare(x.ID, y.ID)
}

func (s *selection) sortByAge() {
	slices.SortFunc(s.order, s.byAge)
	for i := range s.order {
		s.order[i].age = i
	}
}

func (s *selection) capOwners(held func(Owner) int) {
	room := make(map[Owner]int)
	s.order = slices.DeleteFunc(s.order, func(at place) bool {
		c := &s.candidates[at.index]
		if c.Class == Expired {
			return false
		}
		left, known := room[c.Owner]
		if !known {
			left = s.policy.OwnerCap
			if held != nil {
				left -= held(c.Owner)
			}
		}
		room[c.Owner] = left - 1
		return left <= 0
	})
}

func (s *selection) preferClass() {
	preferred := func(at place) bool { return s.candidates[at.index].Class == s.policy.Prefer }
	if slices.ContainsFunc(s.order, preferred) {
		s.order = slices.DeleteFunc(s.order, func(at place) bool { return !preferred(at) })
	}
}

func (s *selection) interleave() {
	next := make(map[Owner]int)
	for i := range s.order {
		owner := s.at(i).Owner
		s.order[i].rank = next[owner]
		next[owner]++
	}
	slices.SortFunc(s.order, func(a, b place) int {
		if c := cmp.Compare(a.rank, b.rank); c != 0 {
			return c
		}
		if c := cmp.Compare(s.candidates[a.index].Turn, s.candidates[b.index].Turn); c != 0 {
			return c
		}
		return cmp.Compare(a.age, b.age)
	})
}

func (s *selection) take() []int {
	n := min(len(s.order), max(0, s.policy.Limit))
	if n >= 2 {
		s.coverClasses(n)
	}
	taken := make([]int, n)
	for i := range taken {
		taken[i] = s.order[i].index
	}
	return taken
}

// coverClasses puts the first candidate of each class into the first two places,
// and gives up one of the first n for it if need be.
func (s *selection) coverClasses(n int) {
	first := s.at(0).Class
	other := slices.IndexFunc(s.order, func(at place) bool { return s.candidates[at.index].Class != first })
	if other < 0 {
		return
	}
	if other >= n {
		given := n - 1
		if s.policy.Fairness == Interleave {
			owner := s.at(other).Owner
			for i := n - 1; i >= 0; i-- {
				if s.at(i).Owner == owner {
					given = i
					break
				}
			}
		}
		s.order[given] = s.order[other]
		other = given
	}
	head := s.order[other]
	front := min(other, 1)
	copy(s.order[front+1:other+1], s.order[front:other])
	s.order[front] = head
}
