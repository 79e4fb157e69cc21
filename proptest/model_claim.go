package proptest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// modelDue is one run that is due: since when, and whether its claim expired.
type modelDue struct {
	id      string
	owner   backend.Owner
	expired bool
	since   time.Time
}

// due lists the runs that a claim considers, by (eligible-at, id).
func (m *model) due(p claim.Policy) []modelDue {
	var due []modelDue
	for id, r := range m.runs {
		switch {
		case r.document.Status != run.Running || r.poisonFor != "" || !admits(p.Filter, id, r.document):
		case r.token == "" && !r.wake.After(p.Now):
			due = append(due, modelDue{id, r.owner, false, r.wake})
		case r.token != "" && p.Now.Sub(r.claimedAt) > p.TTL:
			due = append(due, modelDue{id, r.owner, true, r.claimedAt})
		}
	}
	slices.SortFunc(due, func(a, b modelDue) int {
		if !a.since.Equal(b.since) {
			return a.since.Compare(b.since)
		}
		return strings.Compare(a.id, b.id)
	})
	return due
}

// admits reports whether a filter lets a run through.
func admits(f claim.Filter, id string, d *run.Document) bool {
	if len(f.Runs) > 0 && !slices.Contains(f.Runs, id) {
		return false
	}
	return len(f.Graphs) == 0 || slices.ContainsFunc(f.Graphs, func(g claim.GraphFilter) bool {
		return g.ID == d.Graph.ID && (g.Hash == "" || g.Hash == d.Graph.Hash)
	})
}

// chosen lists the runs that a claim by age without a cap takes, sorted by id: the heads of
// both classes first, then the oldest; at a limit of 1 the preferred class's head.
func chosen(due []modelDue, p claim.Policy) []string {
	head := func(expired bool) int {
		return slices.IndexFunc(due, func(d modelDue) bool { return d.expired == expired })
	}
	var taken []int
	take := func(i int) {
		if i >= 0 && len(taken) < p.Limit && !slices.Contains(taken, i) {
			taken = append(taken, i)
		}
	}
	switch {
	case p.Limit >= 2:
		take(head(false))
		take(head(true))
	case p.Prefer == claim.Ready:
		take(head(false))
	case p.Prefer == claim.Expired:
		take(head(true))
	}
	for i := range due {
		take(i)
	}
	var ids []string
	for _, i := range taken {
		ids = append(ids, due[i].id)
	}
	slices.Sort(ids)
	return ids
}

// misfit says what is wrong with the runs that a claim took, given those that were due.
// By age and without a cap there is one right answer. Under interleaving and under a cap
// there are several, so the rules are judged one by one.
func (m *model) misfit(due []modelDue, p claim.Policy, taken []string) string {
	if p.Fairness == claim.OldestFirst && p.OwnerCap == 0 {
		if want := chosen(due, p); !slices.Equal(taken, want) {
			return fmt.Sprintf("K2: it took %v; it must take %v", taken, want)
		}
		return ""
	}
	if len(taken) > p.Limit {
		return fmt.Sprintf("K2: it took %d outcomes under a limit of %d", len(taken), p.Limit)
	}
	got := map[backend.Owner]int{}
	for _, id := range taken {
		i := slices.IndexFunc(due, func(d modelDue) bool { return d.id == id })
		if i < 0 {
			return fmt.Sprintf("K1: it took %s, which is not due", id)
		}
		got[due[i].owner]++
		for _, older := range due[:i] {
			if older.owner == due[i].owner && older.expired == due[i].expired && !slices.Contains(taken, older.id) {
				return fmt.Sprintf("K5: it took %s before %s, which is older, of the same owner and class", id, older.id)
			}
		}
	}
	if p.OwnerCap > 0 {
		return m.overCap(due, p, taken)
	}
	return unfair(due, p, got)
}

// unfair judges interleaving: each class is served, owners come before age.
func unfair(due []modelDue, p claim.Policy, got map[backend.Owner]int) string {
	waiting := map[backend.Owner]int{}
	for _, d := range due {
		waiting[d.owner]++
	}
	served := 0
	for _, n := range got {
		served += n
	}
	if least := min(p.Limit, len(waiting)); served < least {
		return fmt.Sprintf("K5: it served %d outcomes to %d owners that have due runs, under a limit of %d", served, len(waiting), p.Limit)
	}
	if p.Limit < len(waiting) {
		return ""
	}
	for o := range waiting {
		if got[o] == 0 {
			return fmt.Sprintf("K5: owner %v has a due run and got nothing, though the limit of %d is not below the %d owners", o, p.Limit, len(waiting))
		}
	}
	return ""
}

// overCap judges a cap: no owner comes to hold more than the cap, unless it did before, and
// whoever may be served under the cap is not left out while there is room in the batch.
func (m *model) overCap(due []modelDue, p claim.Policy, taken []string) string {
	before, after, ready := map[backend.Owner]int{}, map[backend.Owner]int{}, map[backend.Owner]int{}
	for _, r := range m.runs {
		if r.token != "" {
			before[r.owner]++
			after[r.owner]++
		}
	}
	for _, d := range due {
		if !slices.Contains(taken, d.id) {
			continue
		}
		exhausted := m.runs[d.id].attempts >= p.MaxAttempts
		switch {
		case !d.expired && !exhausted:
			after[d.owner]++
		case d.expired && exhausted:
			after[d.owner]--
		}
		if !d.expired {
			ready[d.owner]++
		}
	}
	for o, n := range after {
		if n > max(p.OwnerCap, before[o]) {
			return fmt.Sprintf("X10: owner %v holds %d claims under a cap of %d", o, n, p.OwnerCap)
		}
	}
	if len(taken) < p.Limit {
		for _, d := range due {
			if !slices.Contains(taken, d.id) && (d.expired || before[d.owner]+ready[d.owner] < p.OwnerCap) {
				return fmt.Sprintf("X10: %s was left out, though its owner %v is below the cap of %d", d.id, d.owner, p.OwnerCap)
			}
		}
	}
	return ""
}

// launch is what happens to one chosen run: a lease, or poison.
func (m *model) launch(id string, p claim.Policy) (poisoned bool) {
	r := m.runs[id]
	r.wake = time.Time{}
	if r.attempts >= p.MaxAttempts {
		r.token, r.claimedAt = "", time.Time{}
		r.poisonAt, r.poisonFor = p.Now, "max_claim_attempts_exceeded"
		return true
	}
	r.claimedAt = p.Now
	r.attempts++
	return false
}

// holds reports whether a token holds a run.
func (m *model) holds(id string, token claim.Token) bool {
	r := m.runs[id]
	return r != nil && r.token != "" && r.token == token
}

func (m *model) refresh(id string, token claim.Token, now time.Time) string {
	if !m.holds(id, token) {
		return "claim lost"
	}
	if r := m.runs[id]; now.After(r.claimedAt) {
		r.claimedAt = now
	}
	return "ok"
}

func (m *model) release(id string, token claim.Token, p claim.ReleasePolicy) string {
	if !m.holds(id, token) {
		return "ok"
	}
	r := m.runs[id]
	r.token, r.claimedAt, r.wake = "", time.Time{}, p.Now.Add(p.After)
	if p.Refund && r.attempts > 0 {
		r.attempts--
	}
	return "ok"
}

func (m *model) abandon(id string, token claim.Token, p claim.AbandonPolicy) string {
	if !m.holds(id, token) || m.runs[id].document.Seq != p.ExpectedSeq {
		return "stale"
	}
	r := m.runs[id]
	r.token, r.claimedAt = "", time.Time{}
	if r.attempts > 0 {
		r.attempts--
	}
	if !p.NeverPoison && r.abandons >= p.MaxAbandons {
		r.poisonAt, r.poisonFor = p.Now, "max_claim_abandons_exceeded"
		return "poisoned"
	}
	switch {
	case p.NeverPoison && p.Backoff != claim.Backoff{}:
		delay := p.Backoff.Base
		for range r.abandons {
			if delay *= 2; delay >= p.Backoff.Cap {
				break
			}
		}
		r.wake = p.Now.Add(min(delay, p.Backoff.Cap))
	case !p.RetryAt.IsZero():
		r.wake = p.RetryAt
	default:
		r.wake = p.Now.Add(p.RetryAfter)
	}
	r.abandons++
	return "rescheduled"
}

func (m *model) recover(scope backend.Scope, id string, now time.Time) string {
	r := m.seen(scope, id)
	switch {
	case r == nil:
		return "not found"
	case isTerminal(r.document.Status):
		return "inactive run"
	case r.poisonFor == "":
		return "ok"
	}
	r.poisonAt, r.poisonFor, r.token, r.claimedAt = time.Time{}, "", "", time.Time{}
	r.attempts, r.abandons, r.wake = 0, 0, now
	return "ok"
}
