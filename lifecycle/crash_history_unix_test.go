//go:build unix

package lifecycle_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// change is a row of the history that a trigger of a test's own keeps of the table of runs: the row as
// a statement left it. Instants are microseconds since 1970, 0 is none.
type change struct {
	n                  int64  // in the order of the changes of one run
	tx                 string // which transaction; empty: not known
	at                 int64  // when, by the database's clock
	began              int64  // when its transaction did; 0: not known
	run, owner, status string
	seq                int64
	kind, checkpoint   string
	token              string
	claimed, wake      int64
	attempts, abandons int
	poisoned           int64
	reason             string
}

func (c change) String() string {
	return fmt.Sprintf("%s seq %d (%s) %s, wake %d, claimed %d, attempts %d, abandons %d, poisoned %d %s",
		c.run, c.seq, c.kind, c.status, c.wake, c.claimed, c.attempts, c.abandons, c.poisoned, c.reason)
}

// checkpointEvent is the closing event of a commit, as it is stored.
type checkpointEvent struct{ run, checkpoint, tx string }

// launch is a lease, and how it ended.
type launch struct {
	process     string
	from, until int64
	lost        bool
}

// history judges what happened in a store by the invariants of the contract.
type history struct {
	broken  func(format string, args ...any)
	want    map[string]wanted
	runs    map[string][]change
	leases  map[int64][]lease // by the instant of the claim
	poisons []poisoning

	changes, commits, steals, abandons, batches int
}

type lease struct {
	run     string
	expired bool // it was taken over, or poisoned, from somebody
}

// poisoning is a poison with the launches that led to it.
type poisoning struct {
	run      string
	at       int64
	launches []launch
}

func newHistory(broken func(format string, args ...any), changes []change, want map[string]wanted) *history {
	h := &history{broken: broken, want: want, runs: map[string][]change{}, leases: map[int64][]lease{}, changes: len(changes)}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.n, b.n) })
	for _, c := range changes {
		h.runs[c.run] = append(h.runs[c.run], c)
	}
	return h
}

func (h *history) breaks(clause string, at change, format string, args ...any) {
	h.broken("%s: %s: %v", clause, fmt.Sprintf(format, args...), at)
}

// judge checks C1 to C8 and C10 to C12; wantEvents is C9.
func (h *history) judge() {
	if len(h.runs) != len(h.want) {
		h.broken("the history is of %d runs, want %d", len(h.runs), len(h.want))
	}
	holders := map[string]string{} // who ever held a token
	for id, changes := range h.runs {
		h.judgeRun(id, changes, holders)
	}
	h.judgeBatches()
}

func (h *history) judgeRun(id string, changes []change, holders map[string]string) {
	var before change
	var launches []launch
	left := 0 // launches in a row without a commit, less those given back
	committed := map[int64]string{}
	tenant, _ := h.want[id].owner.Tenant()
	for i, c := range changes {
		h.judgeShape(c)
		if c.owner != tenant {
			h.breaks("C10", c, "it belongs to %q, want %q", c.owner, tenant)
		}
		isCommit := c.checkpoint != before.checkpoint
		if isCommit {
			h.commits++
			if first, ok := committed[c.seq]; ok {
				h.breaks("C1", c, "the sequence was committed before, by %s", first)
			}
			committed[c.seq] = c.checkpoint
		}
		if i == 0 {
			if c.seq != 1 || c.kind != string(checkpoint.RunInitialized) {
				h.breaks("C3", c, "the history does not begin with the insert")
			}
			before = c
			continue
		}
		signalled := isCommit && (c.kind == string(checkpoint.InterruptResolved) || c.kind == string(checkpoint.RunCancelled))
		switch {
		case run.Status(before.status).Terminal():
			h.breaks("C8", c, "it was finished")
		case isCommit && c.seq != before.seq+1:
			h.breaks("C3", c, "it was at %d", before.seq)
		case !isCommit && (c.seq != before.seq || c.kind != before.kind || c.status != before.status):
			h.breaks("C3", c, "it changed without a commit, it was %v", before)
		case isCommit && before.token == "" && !signalled:
			h.breaks("C2", c, "it was committed under no claim")
		case before.poisoned != 0 && !signalled && (isCommit || c.wake == 0 || c.attempts != 0 || c.abandons != 0):
			h.breaks("C7", c, "it was poisoned")
		case c.token != "" && c.token == before.token && c.claimed < before.claimed:
			h.breaks("C11", c, "it was claimed at %d", before.claimed)
		}

		leased := c.token != "" && c.token != before.token
		released := c.token == "" && before.token != "" && !isCommit
		if leased {
			if other, ok := holders[c.token]; ok || isCommit {
				h.breaks("C2", c, "the token was held before, by %s", other)
			}
			holders[c.token] = id
		}
		poisonedNow := c.poisoned != 0 && before.poisoned == 0
		if before.token != "" && (leased || poisonedNow) {
			if age := max(c.claimed, c.poisoned) - before.claimed; age <= crashTTL.Microseconds() {
				h.breaks("K1", c, "it was taken over after %dus", age)
			}
			h.steals++
		}
		if n := len(launches); before.token != "" && c.token != before.token && n > 0 {
			launches[n-1].until, launches[n-1].lost = c.at, leased || poisonedNow
		}
		switch {
		case isCommit:
			launches, left = nil, 0
			if c.attempts != 0 || c.abandons != 0 {
				h.breaks("C5", c, "a commit did not clear the counters")
			}
		case leased:
			left++
			process, _, _ := strings.Cut(c.token, "/")
			launches = append(launches, launch{process: process, from: c.claimed})
			h.leases[c.claimed] = append(h.leases[c.claimed], lease{id, before.token != ""})
			if left > crashAttempts || c.attempts != before.attempts+1 || c.abandons != before.abandons {
				h.breaks("C5", c, "launch %d in a row, the attempts were %d", left, before.attempts)
			}
		case poisonedNow:
			h.leases[c.poisoned] = append(h.leases[c.poisoned], lease{id, before.token != ""})
			h.poisons = append(h.poisons, poisoning{id, c.at, launches})
			if c.reason != claim.MaxAttemptsExceeded || left != crashAttempts || c.attempts != crashAttempts {
				h.breaks("C5", c, "it was poisoned after %d launches in a row", left)
			}
		case before.poisoned != 0:
			launches, left = nil, 0
		case released:
			left -= before.attempts - c.attempts
			if n := len(launches); n > 0 && c.attempts < before.attempts {
				launches = launches[:n-1] // it was given back with its attempt, and leads to no poison
			}
			if c.abandons != before.abandons {
				h.abandons++
			}
			if c.attempts != max(0, before.attempts-1) && c.attempts != before.attempts {
				h.breaks("C5", c, "a release left %d of %d attempts", c.attempts, before.attempts)
			}
			if c.abandons != before.abandons && (c.abandons != before.abandons+1 || c.abandons > crashAbandons) {
				h.breaks("C6", c, "the abandons were %d", before.abandons)
			}
		case c.attempts != before.attempts || c.abandons != before.abandons:
			h.breaks("C5", c, "the counters were %d and %d", before.attempts, before.abandons)
		}
		if left != c.attempts {
			h.breaks("C5", c, "it was launched %d times in a row", left)
		}
		before = c
	}
	if !run.Status(before.status).Terminal() {
		h.breaks("C8", before, "it has not ended")
	}
}

// judgeShape is C4 and what clause S1 says besides.
func (h *history) judgeShape(c change) {
	n := 0
	for _, has := range []bool{c.wake != 0, c.token != "", c.poisoned != 0} {
		if has {
			n++
		}
	}
	want := 0
	if c.status == string(run.Running) {
		want = 1
	}
	if n != want || (c.token != "") != (c.claimed != 0) || (c.poisoned != 0) != (c.reason != "") {
		h.breaks("C4", c, "%d of wake, claim and poison", n)
	}
}

const (
	// settled is how long before a claim a run must have been due, and how long after it must have been left alone, for
	// being certain that the claim saw it.
	settled = 300 * time.Millisecond
	// locked is longer than anybody holds the lock of a run that it leaves as it was.
	locked = time.Second
)

// judgeBatches is C12: a claim of two runs or more takes of both classes, when there are both. What the history cannot tell is
// who had a run locked, and so a run of a class must have been passed over for a while.
func (h *history) judgeBatches() {
	var several [2][]int64 // claims of two or more that left out the class: ready, expired
	for at, leases := range h.leases {
		if len(leases) < 2 {
			continue
		}
		h.batches++
		for class, expired := range []bool{false, true} {
			if !slices.ContainsFunc(leases, func(l lease) bool { return l.expired == expired }) {
				several[class] = append(several[class], at)
			}
		}
	}
	for class := range several {
		slices.Sort(several[class])
	}
	for id, changes := range h.runs {
		for i, c := range changes[:len(changes)-1] {
			class, from := 0, max(c.wake, c.at)
			switch {
			case c.token != "":
				class, from = 1, c.claimed+crashTTL.Microseconds()
			case c.wake == 0:
				continue
			}
			next := changes[i+1]
			until := next.at
			for _, since := range []int64{next.began, next.claimed, next.poisoned} {
				if since != 0 {
					until = min(until, since) // from then on it may have been locked
				}
			}
			passed := several[class]
			first, _ := slices.BinarySearch(passed, from+settled.Microseconds())
			last, _ := slices.BinarySearch(passed, until-settled.Microseconds())
			if last > first && passed[last-1]-passed[first] >= locked.Microseconds() {
				h.broken("C12: run %s was due (%d: ready, expired) from %d to %d, and %d claims of several runs took none of its class, from %d to %d",
					id, class, from, until, last-first, passed[first], passed[last-1])
			}
		}
	}
}

// wantEvents is C9: each commit has its closing event, of the same transaction, and there is no other.
func (h *history) wantEvents(events []checkpointEvent) {
	type name struct{ run, checkpoint string }
	stored := map[name]string{}
	for _, e := range events {
		stored[name{e.run, e.checkpoint}] = e.tx
	}
	commits := 0
	for id, changes := range h.runs {
		last := ""
		for _, c := range changes {
			if c.checkpoint == last {
				continue
			}
			last = c.checkpoint
			commits++
			if tx, ok := stored[name{id, c.checkpoint}]; !ok || tx != c.tx {
				h.breaks("C9", c, "its event is missing, or of another transaction (%q, %q)", tx, c.tx)
			}
		}
	}
	if commits != len(stored) {
		h.broken("C9: %d commits and %d closing events", commits, len(stored))
	}
}

// wantPoisonsExplained fails the test when a run was poisoned by launches that nobody had killed or frozen.
func (h *history) wantPoisonsExplained(places []*served, recovered int) {
	if len(h.poisons) != recovered {
		h.broken("%d runs were poisoned, %d recovered", len(h.poisons), recovered)
	}
	died := map[string]time.Time{}
	var frozen [][2]time.Time
	for _, p := range places {
		for name, at := range p.died {
			died[name] = at
		}
		frozen = append(frozen, p.frozen...)
	}
	for _, p := range h.poisons {
		for _, l := range p.launches {
			from, until := time.UnixMicro(l.from), time.UnixMicro(l.until)
			at, isDead := died[l.process]
			explained := isDead && at.Before(until) || slices.ContainsFunc(frozen, func(f [2]time.Time) bool {
				return f[0].Before(until) && f[1].After(from)
			})
			if !explained {
				h.broken("run %s was poisoned at %v: its launch by %s from %v to %v was lost, and nobody killed or froze anything then",
					p.run, time.UnixMicro(p.at), l.process, from, until)
			}
		}
	}
}

func (h *history) summary() string {
	return fmt.Sprintf("%d changes of %d commits, %d takeovers and %d abandons in the history, %d claims of several runs",
		h.changes, h.commits, h.steals, h.abandons, h.batches)
}

// second is one of the histories below.
const second = int64(1_000_000)

// harmless is a history without fault: a run is launched, taken over, commits, is released, launched again, and ends.
func harmless() []change {
	c := change{run: "r", status: "running", kind: "run_initialized", seq: 1, checkpoint: "c1", wake: 10 * second, at: 9 * second}
	all := []change{c}
	next := func(at int64, f func(*change)) {
		c.at = at * second
		f(&c)
		all = append(all, c)
	}
	lease := func(token string) func(*change) {
		return func(c *change) { c.token, c.claimed, c.wake, c.attempts = token, c.at, 0, c.attempts+1 }
	}
	next(10, lease("p0.1/a"))
	next(20, lease("p1.1/b"))
	next(21, func(c *change) { c.claimed = c.at })
	next(22, func(c *change) {
		c.seq, c.kind, c.checkpoint, c.attempts, c.claimed = 2, "step_committed", "c2", 0, c.at
	})
	next(23, func(c *change) { c.token, c.claimed, c.wake, c.abandons = "", 0, c.at, 1 })
	next(24, lease("p1.1/c"))
	next(25, func(c *change) {
		c.seq, c.kind, c.checkpoint, c.attempts, c.abandons, c.token, c.claimed, c.status = 3, "run_completed", "c3", 0, 0, "", 0, "done"
	})
	for i := range all {
		all[i].n = int64(i)
	}
	return all
}

// poisonedTwice is a history of a run that is launched as often as it may, poisoned, and recovered.
func poisonedRun() []change {
	c := change{run: "r", status: "running", kind: "run_initialized", seq: 1, checkpoint: "c1", wake: 10 * second, at: 9 * second}
	all := []change{c}
	for i := range crashAttempts {
		c.at = int64(10+10*i) * second
		c.token, c.claimed, c.wake, c.attempts = fmt.Sprintf("p0.%d/a", i), c.at, 0, i+1
		all = append(all, c)
	}
	c.at += 10 * second
	c.token, c.claimed, c.poisoned, c.reason = "", 0, c.at, claim.MaxAttemptsExceeded
	all = append(all, c)
	c.at += 10 * second
	c.poisoned, c.reason, c.wake, c.attempts = 0, "", c.at, 0
	all = append(all, c)
	c.at += 10 * second
	c.seq, c.kind, c.checkpoint, c.status, c.wake = 2, "run_cancelled", "c2", "cancelled", 0
	all = append(all, c)
	for i := range all {
		all[i].n = int64(i)
	}
	return all
}

func TestTheHistorysJudgeFindsEveryViolation(t *testing.T) {
	insert := func(all []change, i int, c change) []change {
		c.n = all[i].n // before the one that was there
		for j := i; j < len(all); j++ {
			all[j].n++
		}
		return slices.Insert(all, i, c)
	}
	judge := func(all []change, events []checkpointEvent, died time.Time) (found []string) {
		h := newHistory(func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }, all,
			map[string]wanted{"r": {owner: backend.Tenantless()}, "q": {owner: backend.Tenantless()}})
		h.runs["q"] = []change{{run: "q", seq: 1, kind: "run_initialized", checkpoint: "q1", status: "done"}}
		if len(h.runs) < 3 {
			h.want = map[string]wanted{"r": {owner: backend.Tenantless()}, "q": {owner: backend.Tenantless()}}
		}
		h.judge()
		h.wantEvents(events)
		place := &served{died: map[string]time.Time{}}
		for i := range crashAttempts {
			place.died[fmt.Sprintf("p0.%d", i)] = died
		}
		h.wantPoisonsExplained([]*served{place}, len(h.poisons))
		return found
	}
	events := []checkpointEvent{{"r", "c1", ""}, {"r", "c2", ""}, {"r", "c3", ""}, {"q", "q1", ""}}
	shorter := []checkpointEvent{{"r", "c1", ""}, {"r", "c2", ""}, {"q", "q1", ""}}
	soon, never := time.UnixMicro(0), time.UnixMicro(1<<50)
	if found := judge(harmless(), events, never); len(found) > 0 {
		t.Errorf("a harmless history breaks %q", found)
	}
	if found := judge(poisonedRun(), shorter, soon); len(found) > 0 {
		t.Errorf("a run that was poisoned and recovered breaks %q", found)
	}
	for _, tt := range []struct {
		breaks string
		does   func([]change) []change
	}{
		{"C1", func(all []change) []change {
			c := all[7]
			c.seq = 2
			return append(all[:7], c)
		}},
		{"C2", func(all []change) []change { all[6].token = all[1].token; return all }},
		{"C2", func(all []change) []change { return slices.Delete(all, 6, 7) }},
		{"C3", func(all []change) []change { all[7].seq = 4; return all }},
		{"C3", func(all []change) []change { all[5].seq = 3; return all }},
		{"C3", func(all []change) []change { all[3].kind = "snoozed"; return all }},
		{"C4", func(all []change) []change { all[3].wake = second; return all }},
		{"C4", func(all []change) []change { all[7].wake = second; return all }},
		{"C5", func(all []change) []change { all[2].attempts = 1; return all }},
		{"C5", func(all []change) []change { all[4].attempts = 1; return all }},
		{"C6", func(all []change) []change { all[5].abandons = 2; return all }},
		{"C8", func(all []change) []change {
			c := all[7]
			c.at++
			c.n++
			return append(all, c)
		}},
		{"C8", func(all []change) []change { return all[:7] }},
		{"C9", func(all []change) []change {
			all[4].checkpoint, all[5].checkpoint, all[6].checkpoint = "x", "x", "x"
			return all
		}},
		{"C9", func(all []change) []change { all[7].tx = "7"; return all }},
		{"C10", func(all []change) []change { all[3].owner = "acme"; return all }},
		{"C11", func(all []change) []change { all[3].claimed = all[2].claimed - 1; return all }},
		{"K1", func(all []change) []change { all[2].claimed = all[1].claimed + 1; return all }},
		{"C12", func(all []change) []change {
			// Two others are claimed together, while this one has been expired for long.
			for i, id := range []string{"w", "x", "y", "z"} {
				c := change{run: id, status: "running", kind: "run_initialized", seq: 1, checkpoint: id, wake: second, at: second}
				all = append(all, c)
				c.n, c.wake, c.token, c.attempts, c.at = 1, 0, id, 1, int64(14+i/2*3)*second
				c.claimed = c.at
				all = append(all, c)
			}
			return all
		}},
	} {
		if found := judge(tt.does(harmless()), events, never); !slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, tt.breaks+":") }) {
			t.Errorf("%s is not found, but %q", tt.breaks, found)
		}
	}
	for _, tt := range []struct {
		says string
		died time.Time
		does func([]change) []change
	}{
		{"C7:", soon, func(all []change) []change { all[7].attempts = 1; return all }},
		{"C5:", soon, func(all []change) []change { // one launch too many
			c := all[5]
			c.at, c.claimed, c.token, c.attempts = c.at+5*second, c.at+5*second, "p0.0/x", 6
			return insert(all, 6, c)
		}},
		{"was lost, and nobody killed", never, func(all []change) []change { return all }},
	} {
		if found := judge(tt.does(poisonedRun()), shorter, tt.died); !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, tt.says) }) {
			t.Errorf("%q is not found, but %q", tt.says, found)
		}
	}
}
