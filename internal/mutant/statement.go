package mutant

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/proptest"
)

// Statement is one clause broken in the text of one SQL statement.
type Statement struct {
	// Clause are those whose cases must kill it; "" when only Check does.
	Clause string
	// Name is the statement's, From the text in it that becomes To.
	Name, From, To string
}

func (s Statement) String() string { return fmt.Sprintf("%s with %q for %q", s.Name, s.To, s.From) }

// List makes mutants of their four texts: clauses, statement, text, mutated text.
func List(texts [][4]string) []Statement {
	var all []Statement
	for _, t := range texts {
		all = append(all, Statement{Clause: t[0], Name: t[1], From: t[2], To: t[3]})
	}
	return all
}

// Statements are mutants of one backend.
type Statements struct {
	All []Statement
	// Mutate makes one: stores that are opened from here on, until restore, have that text. The text
	// must be there exactly once: else the error, or the opening, says so.
	Mutate func(s Statement) (open proptest.Opener, restore func(), err error)
	// Timeout bounds a conformance case.
	Timeout time.Duration
	// Check is tried on every mutant; else on those alone that no case is to kill.
	Check bool
	// TextsOnly looks for the texts, and tries nothing: the race detector has nothing to find here
	// and would take minutes.
	TextsOnly bool
}

// Kill requires that the kit notices each, and that each is viable.
func (all Statements) Kill(t *testing.T) {
	t.Helper()
	SetFlags(t, map[string]string{"rapid.shrinktime": "0s", "rapid.nofailfile": "true", "rapid.seed": "7", "rapid.checks": "20"})
	killed, byCheck := 0, 0
	var table strings.Builder
	for _, s := range all.All {
		by, rule := all.try(t, s)
		if by != "" || rule != "" {
			killed++
		}
		if rule != "" {
			byCheck++
		}
		fmt.Fprintf(&table, "%-10s %-26s %-40.40q %-40.40q %-36s %s\n", s.Clause, s.Name, s.From, s.To, cmp.Or(by, "-"), cmp.Or(rule, "-"))
	}
	if !all.TextsOnly {
		t.Logf("\nclause, statement, text, mutated text, case that kills it, rule that Check breaks\n%sby Check alone %d\nkilled %d of %d", table.String(), byCheck, killed, len(all.All))
	}
}

// try is what kills one mutant.
func (all Statements) try(t *testing.T, s Statement) (by, rule string) {
	t.Helper()
	open, restore, err := all.Mutate(s)
	if err != nil {
		t.Errorf("%v: %v", s, err)
		return "", ""
	}
	defer restore()
	viable := proptest.Attempt("smoke", t.Logf, func(t proptest.T) {
		store := open(t).Store
		if all.TextsOnly {
			return
		}
		if err := Smoke(store); err != nil {
			t.Fatalf("%v", err)
		}
	})
	if !viable {
		t.Errorf("%v is no mutant: it cannot be made, or nothing works on it", s)
	}
	if !viable || all.TextsOnly {
		return "", ""
	}
	for _, clause := range strings.Fields(s.Clause) {
		if cases := Cases(open, all.Timeout, clause); len(cases) > 0 {
			by = cases[0]
			break
		}
	}
	if s.Clause == "" || all.Check {
		rule, _ = Rule(open)
	}
	switch {
	case s.Clause != "" && by == "":
		t.Errorf("no case of its clause kills %v", s)
	case s.Clause == "" && rule == "":
		t.Errorf("Check does not kill %v", s)
	}
	return by, rule
}
