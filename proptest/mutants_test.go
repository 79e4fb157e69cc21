package proptest_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	kills "github.com/belay-run/belay/internal/mutant"
	"github.com/belay-run/belay/proptest"
)

// mutant is the memory backend with one clause broken in one place.
type mutant struct {
	// clause is the clause that is broken, name says how.
	clause, name string
	breaks       func(b *broken)
}

// opened opens the mutant, empty.
func (m mutant) opened() (backend.Store, proptest.Hooks) {
	var clock atomic.Pointer[time.Time]
	b := newBroken(memory.Options{Now: func() time.Time {
		if now := clock.Load(); now != nil {
			return *now
		}
		return time.Now()
	}})
	m.breaks(b)
	if b.line != nil {
		return b.line, proptest.Hooks{Trouble: b.line.trouble()}
	}
	return b, proptest.Hooks{SetClock: func(now time.Time) { clock.Store(&now) }}
}

// opener opens the mutant.
func (m mutant) opener() proptest.Opener {
	return func(t proptest.T) proptest.Opened {
		s, hooks := m.opened()
		t.Cleanup(func() { _ = s.Close() })
		return proptest.Opened{Store: s, Hooks: hooks}
	}
}

// TestMutants is the proof that the kit can fail: of every mutant it says which case of its
// clause kills it, and which rule Check breaks on it after how many steps. Under the race
// detector, which has nothing to find here and would take minutes, Check is left out.
func TestMutants(t *testing.T) {
	kills.SetFlags(t, map[string]string{"rapid.shrinktime": "0s", "rapid.nofailfile": "true", "rapid.seed": "7"})
	mutants := slices.Concat(claimMutants, holderMutants, commitMutants, insertMutants, readMutants, featureMutants, instantMutants, refusalMutants, cornerMutants, troubleMutants)
	killed, byCheck := 0, 0
	var b strings.Builder
	for _, m := range mutants {
		if err := smoke(m); err != nil {
			t.Errorf("%s, %s: it is not viable: %v", m.clause, m.name, err)
		}
		cases := kills.Cases(m.opener(), time.Second, m.clause)
		rule, steps := "", ""
		if !raceDetector {
			rule, steps = kills.Rule(m.opener())
		}
		if rule != "" {
			byCheck++
		}
		if rule != "" || len(cases) > 0 {
			killed++
		} else {
			t.Errorf("%s, %s: nothing kills it", m.clause, m.name)
		}
		if len(cases) == 0 {
			t.Errorf("%s, %s: no case of its clause kills it", m.clause, m.name)
		}
		fmt.Fprintf(&b, "%-4s %-66s %-30s", m.clause, m.name, cmp.Or(strings.Join(cases[:min(len(cases), 1)], ""), "-"))
		if rule != "" {
			fmt.Fprintf(&b, " %s after %s steps", rule, steps)
		}
		b.WriteByte('\n')
	}
	t.Logf("\n%sby Check alone %d\nkilled %d of %d", b.String(), byCheck, killed, len(mutants))
	if byCheck < 45 && !raceDetector {
		t.Errorf("Check alone kills %d; it must kill 45 at least", byCheck)
	}
}

// writef adds a line to a text.
func writef(b *strings.Builder, format string, args ...any) {
	fmt.Fprintf(b, format+"\n", args...)
}

// smoke takes a run from its start to its end on the mutant.
func smoke(m mutant) error {
	s, _ := m.opened()
	return errors.Join(kills.Smoke(s), s.Close())
}
