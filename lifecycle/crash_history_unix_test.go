//go:build unix

package lifecycle_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
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

// claiming is a claim as the database met it.
type claiming struct {
	name string // of its batch, as of the changes that it made
	free [2]int // at least so many runs of each class were due that nobody else had locked: ready, expired
}

// batch names the changes of one transaction, or what was claimed in one instant.
func (c change) batch() string {
	return cmp.Or(c.tx, strconv.FormatInt(max(c.claimed, c.poisoned), 10))
}

// isOutcome reports whether a claim made the change: it leased the run, or poisoned it.
func (c change) isOutcome(before change) bool {
	return c.token != "" && c.token != before.token || c.poisoned != 0 && before.poisoned == 0 && c.reason == claim.MaxAttemptsExceeded
}

// checkpointEvent is the closing event of a commit, as it is stored.
type checkpointEvent struct{ run, checkpoint, tx string }

// launch is a lease, and how it ended.
type launch struct {
	process     string
	from, until int64
}

// history judges what happened in a store by the invariants of the contract.
type history struct {
	broken  func(format string, args ...any)
	want    map[string]wanted
	runs    map[string][]change
	batches map[string]*batch
	poisons []poisoning

	changes, commits, steals, abandons, claims, both int
}

// batch is what one claim took.
type batch struct {
	at   int64
	took [2]int // ready, expired; what it poisoned is counted
}

// poisoning is a poison with the launches that led to it; with none when abandons did.
type poisoning struct {
	run      string
	at       int64
	launches []launch
}

func newHistory(broken func(format string, args ...any), changes []change, want map[string]wanted) *history {
	h := &history{broken: broken, want: want, runs: map[string][]change{}, batches: map[string]*batch{}, changes: len(changes)}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.n, b.n) })
	for _, c := range changes {
		h.runs[c.run] = append(h.runs[c.run], c)
	}
	return h
}

func (h *history) breaks(clause string, at change, format string, args ...any) {
	h.broken("%s: %s: %v", clause, fmt.Sprintf(format, args...), at)
}

// judge checks C1 to C8, C10 and C11; wantFullBatches is C12 and wantEvents is C9.
func (h *history) judge() {
	if len(h.runs) != len(h.want) {
		h.broken("the history is of %d runs, want %d", len(h.runs), len(h.want))
	}
	holders := map[string]string{} // who ever held a token
	for id, changes := range h.runs {
		h.judgeRun(id, changes, holders)
	}
}

func (h *history) judgeRun(id string, changes []change, holders map[string]string) {
	var before change
	var launches []launch
	left := 0   // launches in a row without a commit, less those given back
	handed := 0 // abandons in a row without a commit
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
		if before.token != "" && c.isOutcome(before) {
			if age := max(c.claimed, c.poisoned) - before.claimed; age <= crashTTL.Microseconds() {
				h.breaks("K1", c, "it was taken over after %dus", age)
			}
			h.steals++
		}
		if n := len(launches); before.token != "" && c.token != before.token && n > 0 {
			launches[n-1].until = c.at
		}
		if c.isOutcome(before) {
			h.outcome(before, c)
		}
		switch {
		case isCommit:
			launches, left, handed = nil, 0, 0
			if c.attempts != 0 || c.abandons != 0 {
				h.breaks("C5", c, "a commit did not clear the counters")
			}
		case leased:
			left++
			process, _, _ := strings.Cut(c.token, "/")
			launches = append(launches, launch{process: process, from: c.claimed})
			if left > crashAttempts || c.attempts != before.attempts+1 || c.abandons != before.abandons {
				h.breaks("C5", c, "launch %d in a row, the attempts were %d", left, before.attempts)
			}
		case poisonedNow && c.reason == claim.MaxAbandonsExceeded:
			h.poisons = append(h.poisons, poisoning{run: id, at: c.at})
			left -= before.attempts - c.attempts
			if before.token == "" || handed != crashAbandons || c.abandons != crashAbandons || c.attempts != max(0, before.attempts-1) {
				h.breaks("C6", c, "it was poisoned after %d abandons in a row", handed)
			}
		case poisonedNow:
			h.poisons = append(h.poisons, poisoning{id, c.at, launches})
			if c.reason != claim.MaxAttemptsExceeded || left != crashAttempts || c.attempts != crashAttempts {
				h.breaks("C5", c, "it was poisoned after %d launches in a row", left)
			}
		case before.poisoned != 0:
			launches, left, handed = nil, 0, 0
		case released:
			left -= before.attempts - c.attempts
			if n := len(launches); n > 0 && c.attempts < before.attempts {
				launches = launches[:n-1] // it was given back with its attempt, and leads to no poison
			}
			if c.abandons != before.abandons {
				h.abandons++
				handed++
			}
			if c.attempts != max(0, before.attempts-1) && c.attempts != before.attempts {
				h.breaks("C5", c, "a release left %d of %d attempts", c.attempts, before.attempts)
			}
			if c.abandons != before.abandons && (c.abandons != before.abandons+1 || handed > crashAbandons || c.attempts != max(0, before.attempts-1)) {
				h.breaks("C6", c, "abandon %d in a row, the abandons were %d", handed, before.abandons)
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

// outcome counts what a claim took. A run that nobody held was ready.
func (h *history) outcome(before, c change) {
	b := h.batches[c.batch()]
	if b == nil {
		b = &batch{at: max(c.claimed, c.poisoned)}
		h.batches[c.batch()] = b
	}
	class := 0
	if before.token != "" {
		class = 1
	}
	b.took[class]++
}

// wantFullBatches is C12, and the filling of a batch that K2 and K4 promise: a claim takes of each class of which a run was
// due that nobody else had locked, unless it may take one only, and it takes as many as it may when they are there. Limits
// are by the instant of the claim; one that is not known, since its process died, is as large as what was taken.
func (h *history) wantFullBatches(claims []claiming, limits map[int64]int) {
	known := map[string]bool{}
	for _, c := range claims {
		known[c.name] = true
		b, limit := h.batches[c.name], 1
		if b == nil {
			b = &batch{}
		}
		took := b.took[0] + b.took[1]
		if named, ok := limits[b.at]; ok {
			limit = named
		} else {
			limit = max(limit, took)
		}
		h.claims++
		if c.free[0] > 0 && c.free[1] > 0 && limit >= 2 {
			h.both++
		}
		for class, name := range []string{"ready", "expired"} {
			if limit >= 2 && c.free[class] > 0 && b.took[class] == 0 {
				h.broken("C12: a claim of %d took %d ready and %d expired runs at %d, and %d were there that are %s", limit, b.took[0], b.took[1], b.at, c.free[class], name)
			}
		}
		if took > limit || took < min(limit, c.free[0]+c.free[1]) {
			h.broken("K4: a claim of %d took %d ready and %d expired runs at %d, of at least %d and %d", limit, b.took[0], b.took[1], b.at, c.free[0], c.free[1])
		}
	}
	for name, b := range h.batches {
		if !known[name] {
			h.broken("C12: the claim %s at %d is not among those that the database met", name, b.at)
		}
	}
}

// claimsInTurn finds the claims in the changes of a database in which one writer follows the other, and what each
// could have taken: nothing is locked there.
func claimsInTurn(changes []change) (claims []claiming) {
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.n, b.n) })
	runs := map[string]change{}
	for _, c := range changes {
		name := c.batch()
		if c.isOutcome(runs[c.run]) && (len(claims) == 0 || claims[len(claims)-1].name != name) {
			now := max(c.claimed, c.poisoned)
			next := claiming{name: name}
			for _, r := range runs {
				switch {
				case r.wake != 0 && r.wake <= now:
					next.free[0]++
				case r.token != "" && r.claimed < now-crashTTL.Microseconds():
					next.free[1]++
				}
			}
			claims = append(claims, next)
		}
		runs[c.run] = c
	}
	return claims
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
	for _, p := range h.poisons { // those of abandons judgeRun has explained: handed back as often as it may
		for _, l := range p.launches {
			from, until := time.UnixMicro(l.from), time.UnixMicro(l.until)
			at, isDead := died[l.process]
			explained := isDead && at.Before(until) || slices.ContainsFunc(frozen, func(f [2]time.Time) bool {
				return f[0].Before(until) && f[1].After(from)
			})
			if !explained {
				h.broken("run %s was poisoned at %v: its launch by %s from %v to %v used an attempt up, and nobody killed or froze anything then",
					p.run, time.UnixMicro(p.at), l.process, from, until)
			}
		}
	}
}

// foreign counts the poisons of runs that were handed back too often.
func (h *history) foreign() (n int) {
	for _, p := range h.poisons {
		if len(p.launches) == 0 {
			n++
		}
	}
	return n
}

func (h *history) summary() string {
	return fmt.Sprintf("%d changes of %d commits, %d takeovers, %d abandons and %d poisons by abandons in the history, %d claims, %d of several with both classes to be had",
		h.changes, h.commits, h.steals, h.abandons, h.foreign(), h.claims, h.both)
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

// poisonedRun is a history of a run that is launched as often as it may, poisoned, and recovered.
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
		h.wantFullBatches(claimsInTurn(all), nil)
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
		{"C6", func(all []change) []change { // after one abandon, before as many as it may have
			c := all[6]
			c.n++
			c.at += second / 2
			c.token, c.claimed, c.attempts, c.poisoned, c.reason = "", 0, 0, c.at, claim.MaxAbandonsExceeded
			return insert(all, 7, c)
		}},
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
			// Two others are claimed together, while this one is expired.
			for _, id := range []string{"x", "y"} {
				c := change{run: id, status: "running", kind: "run_initialized", seq: 1, checkpoint: id, wake: second, at: second}
				all = append(all, c)
				c.n, c.wake, c.token, c.attempts, c.at, c.claimed = 1, 0, id, 1, 14*second, 14*second
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
		{"used an attempt up, and nobody killed", never, func(all []change) []change { return all }},
	} {
		if found := judge(tt.does(poisonedRun()), shorter, tt.died); !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, tt.says) }) {
			t.Errorf("%q is not found, but %q", tt.says, found)
		}
	}
}

func TestAClaimIsJudgedByWhatNobodyHadLocked(t *testing.T) {
	for _, tt := range []struct {
		name       string
		free, took [2]int
		limit      int // 0: not known
		breaks     string
	}{
		{name: "it takes of both classes", free: [2]int{1, 1}, took: [2]int{3, 1}},
		{name: "it leaves the ready runs out", free: [2]int{1, 1}, took: [2]int{0, 2}, breaks: "C12"},
		{name: "it leaves the expired runs out", free: [2]int{1, 1}, took: [2]int{2, 0}, breaks: "C12"},
		{name: "it leaves the expired runs out, which others have locked", free: [2]int{1, 0}, took: [2]int{2, 0}},
		{name: "it takes one, and may take two", free: [2]int{1, 1}, took: [2]int{1, 0}, limit: 2, breaks: "C12"},
		{name: "it takes one, and may take no more", free: [2]int{1, 1}, took: [2]int{1, 0}, limit: 1},
		{name: "it does not take as many as it may", free: [2]int{3, 0}, took: [2]int{2, 0}, limit: 3, breaks: "K4"},
		{name: "it takes nothing", free: [2]int{0, 1}, breaks: "K4"},
		{name: "there is nothing", free: [2]int{0, 0}},
		{name: "it takes more than it may", free: [2]int{1, 1}, took: [2]int{2, 1}, limit: 2, breaks: "K4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var found []string
			h := newHistory(func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }, nil, nil)
			limits := map[int64]int{}
			if tt.took != [2]int{} {
				h.batches["claim"] = &batch{at: second, took: tt.took}
			}
			if tt.limit != 0 {
				limits[second] = tt.limit
			}
			h.wantFullBatches([]claiming{{"claim", tt.free}}, limits)
			switch {
			case tt.breaks == "" && len(found) > 0:
				t.Errorf("it breaks %q", found)
			case tt.breaks != "" && !slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, tt.breaks+":") }):
				t.Errorf("%s is not found, but %q", tt.breaks, found)
			}
		})
	}
}
