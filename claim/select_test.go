package claim_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/claim"
)

// due parses candidates as prose: "A r1" is owner A's ready run, eligible at 1.
func due(lines ...string) []claim.Candidate {
	var all []claim.Candidate
	for _, line := range lines {
		for _, word := range strings.Fields(line[2:]) {
			var seconds int
			if _, err := fmt.Sscanf(word[1:], "%d", &seconds); err != nil {
				panic(err)
			}
			class := claim.Ready
			if word[0] == 'x' {
				class = claim.Expired
			}
			all = append(all, claim.Candidate{ID: line[:1] + word, Owner: claim.Tenant(line[:1]), Class: class, At: at(time.Duration(seconds) * time.Second)})
		}
	}
	return all
}

func picked(candidates []claim.Candidate, p claim.Policy, held func(claim.Owner) int) string {
	var ids []string
	for _, i := range claim.Select(candidates, p, held) {
		ids = append(ids, candidates[i].ID)
	}
	return strings.Join(ids, " ")
}

func TestSelectRules(t *testing.T) {
	held := func(o claim.Owner) int { return map[string]int{"A": 2, "B": 1}[o.String()] }
	for _, c := range []struct {
		name       string
		candidates []claim.Candidate
		policy     claim.Policy
		want       string
	}{
		{"nothing due", nil, claim.Policy{Limit: 3}, ""},
		{"the oldest first", due("A r3 r1 r2"), claim.Policy{Limit: 2}, "Ar1 Ar2"},
		{"the id decides between equals", due("B r1", "A r1", "C r1"), claim.Policy{Limit: 2}, "Ar1 Br1"},
		{"fewer than the limit", due("A r1 x2"), claim.Policy{Limit: 5}, "Ar1 Ax2"},
		{"both heads first", due("A r1 r2 r3 x4 x5"), claim.Policy{Limit: 4}, "Ar1 Ax4 Ar2 Ar3"},
		{"a class is never crowded out", due("A x1 x2 x3 x4 r5"), claim.Policy{Limit: 2}, "Ax1 Ar5"},
		{"one class alone fills the batch", due("A x1 x2 x3"), claim.Policy{Limit: 2}, "Ax1 Ax2"},
		{"preference is ignored from limit 2", due("A r1 r2 x3"), claim.Policy{Limit: 2, Prefer: claim.Expired}, "Ar1 Ax3"},
		{"limit 1 without preference", due("A r2 x1"), claim.Policy{Limit: 1}, "Ax1"},
		{"limit 1 prefers ready", due("A r2 x1"), claim.Policy{Limit: 1, Prefer: claim.Ready}, "Ar2"},
		{"limit 1 prefers expired", due("A r1 x2 x3"), claim.Policy{Limit: 1, Prefer: claim.Expired}, "Ax2"},
		{"limit 1 falls through", due("A r1"), claim.Policy{Limit: 1, Prefer: claim.Expired}, "Ar1"},
		{"interleave gives each owner one", due("A r1 r2 r3", "B r9"), claim.Policy{Limit: 2, Fairness: claim.Interleave}, "Ar1 Br9"},
		{"then each a second", due("A r1 r2 r3 r4", "B r8 r9", "C r7"), claim.Policy{Limit: 6, Fairness: claim.Interleave}, "Ar1 Cr7 Br8 Ar2 Br9 Ar3"},
		{"interleave keeps both classes", due("A r1 r2 r3", "B r4 x5"), claim.Policy{Limit: 3, Fairness: claim.Interleave}, "Ar1 Bx5 Ar2"},
		{"the head of a class is interleaved too", due("A r1 x2", "B x3"), claim.Policy{Limit: 2, Fairness: claim.Interleave}, "Ar1 Bx3"},
		{"an owner gives its own place for the other class", due("A r1 x2", "B r3"), claim.Policy{Limit: 2, Fairness: claim.Interleave}, "Ax2 Br3"},
		{"its last place, if it has several", due("A r1 r2 x5", "B r3"), claim.Policy{Limit: 3, Fairness: claim.Interleave}, "Ar1 Ax5 Br3"},
		{"or the last gives it", due("A r1", "B r2", "C x3 x4"), claim.Policy{Limit: 2, Fairness: claim.Interleave}, "Ar1 Cx3"},
		{"a cap counts what is held", due("A r1 r2 r3", "B r4 r5"), claim.Policy{Limit: 9, OwnerCap: 3}, "Ar1 Br4 Br5"},
		{"an expired claim is counted already", due("A x1 x2 x3 r4"), claim.Policy{Limit: 9, OwnerCap: 2}, "Ax1 Ax2 Ax3"},
		{"a full owner leaves its places to others", due("A r1 r2", "C r9"), claim.Policy{Limit: 1, OwnerCap: 2}, "Cr9"},
		{"no cap is no question", due("A r1 r2"), claim.Policy{Limit: 9}, "Ar1 Ar2"},
		{"another class is no candidate", []claim.Candidate{{ID: "a"}}, claim.Policy{Limit: 1}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := picked(c.candidates, c.policy, held); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if got := picked(due("A r1 r2"), claim.Policy{Limit: 9, OwnerCap: 1}, nil); got != "Ar1" {
		t.Errorf("a cap without held claims: got %q", got)
	}
}

func drawCandidates(t *rapid.T) []claim.Candidate {
	n := rapid.IntRange(0, 24).Draw(t, "candidates")
	turns := rapid.SliceOfN(rapid.Uint64Range(0, 2), 4, 4).Draw(t, "turns")
	all := make([]claim.Candidate, n)
	for i := range all {
		owner := rapid.IntRange(0, 3).Draw(t, "owner")
		all[i] = claim.Candidate{
			ID: fmt.Sprintf("r%02d", i), Owner: claim.Tenant(fmt.Sprint(owner)), Turn: turns[owner],
			Class: rapid.SampledFrom([]claim.Class{claim.Ready, claim.Expired}).Draw(t, "class"),
			At:    at(time.Duration(rapid.IntRange(0, 5).Draw(t, "at"))),
		}
	}
	return rapid.Permutation(all).Draw(t, "order")
}

func older(a, b claim.Candidate) bool {
	return cmp.Or(a.At.Compare(b.At), strings.Compare(a.ID, b.ID)) < 0
}

// fits is the naive reading of an owner cap: expired claims always fit, and of the
// ready ones those that have fewer older ones than there is room.
func fits(all []claim.Candidate, c claim.Candidate, ownerCap int, held func(claim.Owner) int) bool {
	if ownerCap == 0 || c.Class == claim.Expired {
		return true
	}
	before := 0
	for _, other := range all {
		if other.Owner == c.Owner && other.Class == claim.Ready && older(other, c) {
			before++
		}
	}
	return before < ownerCap-held(c.Owner)
}

// breadthFirst is the naive reading of Interleave: round after round, each owner
// with something left gives its oldest, the owners by turn and then by its age.
func breadthFirst(all []claim.Candidate) (order []claim.Candidate) {
	left := slices.Clone(all)
	for len(left) > 0 {
		var round []claim.Candidate
		for _, c := range left {
			if !slices.ContainsFunc(left, func(other claim.Candidate) bool { return other.Owner == c.Owner && older(other, c) }) {
				round = append(round, c)
			}
		}
		left = slices.DeleteFunc(left, func(c claim.Candidate) bool { return slices.Contains(round, c) })
		slices.SortFunc(round, func(a, b claim.Candidate) int {
			return cmp.Or(cmp.Compare(a.Turn, b.Turn), a.At.Compare(b.At), strings.Compare(a.ID, b.ID))
		})
		order = append(order, round...)
	}
	return order
}

func TestSelectFollowsItsSpecification(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawCandidates(t)
		p := claim.Policy{
			Limit:    rapid.IntRange(1, 8).Draw(t, "limit"),
			Prefer:   rapid.SampledFrom([]claim.Class{claim.NoClass, claim.Ready, claim.Expired}).Draw(t, "prefer"),
			Fairness: rapid.SampledFrom([]claim.Fairness{claim.OldestFirst, claim.Interleave}).Draw(t, "fairness"),
			OwnerCap: rapid.IntRange(0, 3).Draw(t, "cap"),
		}
		holds := rapid.SliceOfN(rapid.IntRange(0, 3), 4, 4).Draw(t, "held")
		held := func(o claim.Owner) int { return holds[o.String()[0]-'0'] }

		var taken []claim.Candidate
		for _, i := range claim.Select(all, p, held) {
			taken = append(taken, all[i])
		}

		var eligible []claim.Candidate
		for _, c := range all {
			if fits(all, c, p.OwnerCap, held) {
				eligible = append(eligible, c)
			}
		}
		of := func(list []claim.Candidate, class claim.Class) (some []claim.Candidate) {
			for _, c := range list {
				if c.Class == class {
					some = append(some, c)
				}
			}
			return some
		}
		if p.Limit == 1 && len(of(eligible, p.Prefer)) > 0 {
			eligible = of(eligible, p.Prefer)
		}
		order := slices.Clone(eligible)
		if p.Fairness == claim.Interleave {
			order = breadthFirst(eligible)
		} else {
			slices.SortFunc(order, func(a, b claim.Candidate) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.ID, b.ID)) })
		}
		want := slices.Clone(order[:min(p.Limit, len(order))])
		sameOwner := func(list []claim.Candidate, o claim.Owner) (n int) {
			for _, c := range list {
				if c.Owner == o {
					n++
				}
			}
			return n
		}

		if len(taken) != len(want) {
			t.Fatalf("took %d of %d eligible, want %d", len(taken), len(eligible), len(want))
		}
		for i, c := range taken {
			if !slices.Contains(eligible, c) || slices.Contains(taken[:i], c) {
				t.Fatalf("took %v, which is not eligible or taken twice", c)
			}
		}
		both := p.Limit >= 2 && len(of(eligible, claim.Ready)) > 0 && len(of(eligible, claim.Expired)) > 0
		if both && taken[0].Class == taken[1].Class {
			t.Fatalf("both classes have candidates, the first two taken are %v and %v", taken[0], taken[1])
		}
		crowdedOut := both && (len(of(want, claim.Ready)) == 0 || len(of(want, claim.Expired)) == 0)
		if !crowdedOut {
			for _, c := range want {
				if !slices.Contains(taken, c) {
					t.Fatalf("%v is among the first %d and was not taken", c, p.Limit)
				}
			}
			return
		}
		// One of the first gave its place to the first of the class that was left out.
		lone := of(taken, claim.Ready)
		if len(of(want, claim.Ready)) > 0 {
			lone = of(taken, claim.Expired)
		}
		head := of(order, lone[0].Class)[0]
		if len(lone) != 1 || lone[0] != head {
			t.Fatalf("the class left out got %v, want its head %v", lone, head)
		}
		var given []claim.Candidate
		for _, c := range want {
			if !slices.Contains(taken, c) {
				given = append(given, c)
			}
		}
		if len(given) != 1 {
			t.Fatalf("%v gave their places, one was needed", given)
		}
		switch {
		case p.Fairness == claim.OldestFirst || sameOwner(want, head.Owner) == 0:
			if given[0] != want[len(want)-1] {
				t.Fatalf("%v gave its place, not the last, %v", given[0], want[len(want)-1])
			}
		case given[0].Owner != head.Owner:
			t.Fatalf("%v gave its place to %v, whose owner had one", given[0], head)
		}
		if p.Fairness == claim.Interleave {
			for _, c := range eligible {
				if slices.Contains(taken, c) {
					continue
				}
				for _, other := range taken {
					if sameOwner(taken, other.Owner) > sameOwner(taken, c.Owner)+1 {
						t.Fatalf("%v has %d outcomes while %v waits with %d", other.Owner, sameOwner(taken, other.Owner), c, sameOwner(taken, c.Owner))
					}
				}
			}
		}
	})
}

func TestSelectDoesNotDependOnTheOrderOfCandidates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := drawCandidates(t)
		p := claim.Policy{Limit: rapid.IntRange(1, 8).Draw(t, "limit"), Fairness: claim.Fairness(rapid.IntRange(0, 1).Draw(t, "fairness"))}
		want := picked(all, p, nil)
		if got := picked(rapid.Permutation(all).Draw(t, "permuted"), p, nil); got != want {
			t.Fatalf("got %q, then %q", want, got)
		}
	})
}

// H31, as far as it lives here: turns rotate over owners from call to call.
func TestH31ALoneRunIsNeverBehindAnothersBacklog(t *testing.T) {
	for limit := 1; limit <= 3; limit++ {
		waiting := map[string]int{"A": 1000, "B": 1000, "C": 1}
		turn := map[string]uint64{}
		served := map[string]int{}
		outcomes := uint64(0)
		for poll := range 4 {
			var candidates []claim.Candidate
			for _, owner := range []string{"A", "B", "C"} {
				for i := range waiting[owner] {
					since := at(time.Duration(i))
					if owner == "C" {
						since = at(time.Hour)
					}
					candidates = append(candidates, claim.Candidate{ID: fmt.Sprint(owner, i), Owner: claim.Tenant(owner), Class: claim.Ready, At: since, Turn: turn[owner]})
				}
			}
			for _, i := range claim.Select(candidates, claim.Policy{Limit: limit, Fairness: claim.Interleave}, nil) {
				owner := candidates[i].Owner.String()
				waiting[owner]--
				served[owner]++
				outcomes++
				turn[owner] = outcomes
			}
			if polls := poll + 1; polls*limit >= 3 && served["C"] == 0 {
				t.Fatalf("limit %d: after %d polls C was not served: %v", limit, polls, served)
			}
		}
		if served["A"]-served["B"] > 1 || served["B"]-served["A"] > 1 {
			t.Errorf("limit %d: %v", limit, served)
		}
	}
}

func BenchmarkSelect(b *testing.B) {
	candidates := make([]claim.Candidate, 1000)
	for i := range candidates {
		j := i * 7919 % len(candidates) // in no order
		candidates[i] = claim.Candidate{
			ID: fmt.Sprintf("run-%04d", j), Owner: claim.Tenant(fmt.Sprint("tenant-", j%20)),
			Class: claim.Class(1 + j%7/6), At: at(time.Duration(j) * time.Millisecond),
		}
	}
	for name, fairness := range map[string]claim.Fairness{"OldestFirst": claim.OldestFirst, "Interleave": claim.Interleave} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := claim.Select(candidates, claim.Policy{Limit: 32, Fairness: fairness}, nil); len(got) != 32 {
					b.Fatal(len(got))
				}
			}
		})
	}
}
