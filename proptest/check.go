package proptest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/backend"
)

// always is an action that may always be taken.
func always(*machine) bool { return true }

// actions are the kinds of steps, in the order of their names.
var actions = []action{
	{"abandon", 5, func(m *machine) bool { return len(m.views) > 0 }, abandon, true},
	{"claim", 8, always, claims(false), true},
	{"claim documents", 2, func(m *machine) bool { return m.store.Features().ClaimDocuments != nil }, claims(true), true},
	{"commit", 9, func(m *machine) bool { return len(m.views) > 0 }, commit, true},
	{"commit again", 3, func(m *machine) bool { return len(m.sent) > 0 }, commitAgain, true},
	{"commit group", 2, func(m *machine) bool { return len(m.views) > 1 && m.store.Features().Batches != nil }, commitGroup, true},
	{"insert", 7, func(m *machine) bool { return len(m.model.runs) < maxRuns }, insert, true},
	{"insert again", 1, func(m *machine) bool { return len(m.inserts) > 0 }, insertAgain, true},
	{"insert taken", 1, func(m *machine) bool { return len(m.model.runs) > 0 }, insertTaken, true},
	{"mutate", 4, func(m *machine) bool { return len(m.model.runs) > 0 }, mutate, true},
	{"mutate again", 1, func(m *machine) bool { return len(m.mutations) > 0 }, mutateAgain, true},
	{"prune", 2, func(m *machine) bool {
		return m.store.Features().Retention != nil && len(m.model.prunable(backend.PrunePolicy{Before: m.clock.Add(ttl)})) > 0
	}, prune, false},
	{"publish", 1, always, publish, false},
	{"recover", 2, func(m *machine) bool { return len(m.model.runs) > 0 }, recovers, true},
	{"refresh", 3, func(m *machine) bool { return len(m.views) > 0 }, refresh, true},
	{"refresh group", 1, func(m *machine) bool { return len(m.views) > 1 && m.store.Features().Batches != nil }, refreshAll, true},
	{"release", 3, func(m *machine) bool { return len(m.views) > 0 }, release, true},
	{"time passes", 5, always, passes, false},
}

// corners are what a Check of the default size must have met at least once.
var corners = []string{
	"a claim exactly at its TTL", "a claim one microsecond past its TTL",
	"a wake exactly reached", "a wake one microsecond ahead",
	"two runs eligible since the same instant",
	"both classes due, more than the limit", "both classes due, a limit of 1, a preference", "the preferred class empty",
	"attempts at the maximum", "abandons at the maximum",
	"a refresh older than the claimed-at", "a retain older than the claimed-at",
	"a commit by a zombie", "a commit by a zombie at the current sequence", "a commit by a zombie of a run that nobody holds",
	"a commit sent again after a newer one", "a reply lost", "a start key held",
}

// enough is the number of actions from which on a Check must have starved none.
const enough = 5000

// Check makes random histories on stores that open gives, a fresh one for each, and holds
// every answer and the whole observable state after every step against a model of the
// contract, and against C1 to C12. With Hooks.Trouble that can settle, calls meet trouble: the answer
// may then be an error of unknown outcome, after which the store must show that the call took
// effect once or not at all, and which is often sent again, as clause T5 has it.
//
// How many histories there are, and from which seed, is rapid's to say: -rapid.checks and
// -rapid.seed, or RAPID_CHECKS and RAPID_SEED. A failure prints the shortest history that
// was found, one line a call.
func Check(t T, open Opener, o Options) {
	t.Helper()
	o = o.withDefaults()
	cov := newCoverage()
	rapid.Check(TB(t), func(rt *rapid.T) { oneHistory(rt, open, o, cov) })
	o.log(t, cov.String())
	if starved := cov.starved(offered(open, t), corners); cov.total() >= enough && len(starved) > 0 {
		t.Errorf("%d actions met none of these: %s", cov.total(), strings.Join(starved, "; "))
	}
}

// oneHistory makes one random history.
func oneHistory(rt *rapid.T, open Opener, o Options, cov *coverage) {
	rt.Helper()
	m := newMachine(rt, open(rt), cov)
	for range o.Rounds {
		rt.Repeat(map[string]func(*rapid.T){"step": m.step})
	}
}

// fuzzSeeds are how many histories a fuzz test begins with, fuzzBytes how many bytes each draws from.
const (
	fuzzSeeds = 4
	fuzzBytes = 64 << 10
)

// Fuzz is Check as a native fuzz test: the fuzzer makes the bytes that histories are drawn from, and
// keeps those that reach new code of the store.
//
//	func FuzzStore(f *testing.F) { proptest.Fuzz(f, open, proptest.Options{}) }
func Fuzz(f *testing.F, open Opener, o Options) {
	f.Helper()
	o = o.withDefaults()
	for seed := range uint64(fuzzSeeds) {
		random, drawn := rand.New(rand.NewPCG(seed, 0)), make([]byte, 0, fuzzBytes)
		for len(drawn) < fuzzBytes {
			drawn = binary.LittleEndian.AppendUint64(drawn, random.Uint64())
		}
		f.Add(drawn)
	}
	f.Fuzz(rapid.MakeFuzz(func(rt *rapid.T) { oneHistory(rt, open, o, newCoverage()) }))
}

// offered lists the actions that a store's features allow.
func offered(open Opener, t T) []string {
	f := open(t).Store.Features()
	var names []string
	for _, a := range actions {
		switch a.name {
		case "claim documents":
			if f.ClaimDocuments == nil {
				continue
			}
		case "commit group", "refresh group":
			if f.Batches == nil {
				continue
			}
		case "prune":
			if f.Retention == nil {
				continue
			}
		}
		names = append(names, a.name)
	}
	return names
}

// TB is t as rapid.Check wants it. What rapid says that it drew is left out of t's log: a kit
// that is built on this one tells its histories itself.
func TB(t T) rapid.TB { return rapidTB{t} }

// rapidTB adds to a T what rapid.TB asks for beyond it, and keeps the list of what was
// drawn out of the log: the history tells the same, and can be read.
type rapidTB struct{ T }

func (t rapidTB) Logf(format string, args ...any) {
	t.Helper()
	if !strings.HasPrefix(format, "[rapid] draw ") {
		t.T.Logf(format, args...)
	}
}

func (t rapidTB) Log(args ...any)                  { t.Helper(); t.Logf("%s", sprint(args)) }
func (t rapidTB) Error(args ...any)                { t.Helper(); t.Errorf("%s", sprint(args)) }
func (t rapidTB) Fatal(args ...any)                { t.Helper(); t.Fatalf("%s", sprint(args)) }
func (t rapidTB) Fail()                            { t.Helper(); t.Errorf("failed") }
func (t rapidTB) Skipf(format string, args ...any) { t.Helper(); t.Fatalf("skipped: "+format, args...) }

func (t rapidTB) Skip(args ...any) { t.Helper(); t.Fatalf("skipped: %s", sprint(args)) }
func (t rapidTB) SkipNow()         { t.Helper(); t.Fatalf("skipped") }

func sprint(args []any) string { return strings.TrimSuffix(fmt.Sprintln(args...), "\n") }
