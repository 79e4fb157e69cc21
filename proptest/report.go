package proptest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Result is what a case came to.
type Result string

// The results. Untested is not a success: the case could not be tried.
const (
	Passed   Result = "passed"
	Failed   Result = "failed"
	Untested Result = "untested"
)

// Finding is the result of one case.
type Finding struct {
	// Case is the stable id, "K3.max-attempts"; Clause is the clause it proves, "K3".
	Case   string `json:"case"`
	Clause string `json:"clause"`
	// Says is the rule, in one sentence.
	Says   string `json:"says"`
	Result Result `json:"result"`
	// Why an untested case was not tried, or a failed one failed.
	Why string `json:"why,omitempty"`
	// Took is the time of the case, opening the store included.
	Took time.Duration `json:"took_ns"`
}

// Report is what a suite found, ready to be written as JSON.
type Report struct {
	// Declared and Absent are the ids of the features the store declares, and of those it
	// does not.
	Declared []string `json:"features_declared"`
	Absent   []string `json:"features_absent"`
	// Hooks are the names of the hooks the opener supplied.
	Hooks    []string  `json:"hooks"`
	Findings []Finding `json:"findings"`
}

// ClauseResult sums up the cases of one clause.
type ClauseResult struct {
	Clause   string `json:"clause"`
	Passed   int    `json:"passed"`
	Failed   int    `json:"failed"`
	Untested int    `json:"untested"`
}

// Result is Failed if one case failed, Passed if at least one passed and none failed,
// else Untested.
func (c ClauseResult) Result() Result {
	switch {
	case c.Failed > 0:
		return Failed
	case c.Passed > 0:
		return Passed
	default:
		return Untested
	}
}

// proves are the clauses that the cases of another one prove as well: a feature whose
// clause stands among the claims, an invariant that follows from one rule alone.
var proves = map[string][]string{
	"A1": {"H8"}, "A4": {"C11"}, "F2": {"X8"}, "K2": {"C12"}, "K3": {"C5"}, "K4": {"H11"}, "K6": {"X3"}, "K9": {"C6"},
	"R3": {"X1"}, "S1": {"C4"},
}

// Clauses sums the findings up by clause, in the order of the contract.
func (r Report) Clauses() []ClauseResult {
	var sums []ClauseResult
	for _, f := range r.Findings {
		for _, clause := range append([]string{f.Clause}, proves[f.Clause]...) {
			i := slices.IndexFunc(sums, func(c ClauseResult) bool { return c.Clause == clause })
			if i < 0 {
				i = len(sums)
				sums = append(sums, ClauseResult{Clause: clause})
			}
			switch f.Result {
			case Passed:
				sums[i].Passed++
			case Failed:
				sums[i].Failed++
			default:
				sums[i].Untested++
			}
		}
	}
	slices.SortStableFunc(sums, func(a, b ClauseResult) int { return compareClauses(a.Clause, b.Clause) })
	return sums
}

// Failed lists the findings that failed.
func (r Report) Failed() []Finding {
	var failed []Finding
	for _, f := range r.Findings {
		if f.Result == Failed {
			failed = append(failed, f)
		}
	}
	return failed
}

// Passed reports whether nothing failed. What was untested does not count against it.
func (r Report) Passed() bool { return len(r.Failed()) == 0 }

// String is the report as a person reads it: one line a clause, then what was not tested and why.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "features declared: %s; absent: %s; hooks: %s\n",
		list(r.Declared), list(r.Absent), list(r.Hooks))
	for _, c := range r.Clauses() {
		fmt.Fprintf(&b, "%-4s %-8s %d passed", c.Clause, c.Result(), c.Passed)
		if c.Failed > 0 {
			fmt.Fprintf(&b, ", %d failed", c.Failed)
		}
		if c.Untested > 0 {
			fmt.Fprintf(&b, ", %d untested", c.Untested)
		}
		b.WriteByte('\n')
	}
	for _, f := range r.Findings {
		if f.Result != Passed {
			fmt.Fprintf(&b, "%s %s: %s\n", f.Result, f.Case, f.Why)
		}
	}
	return b.String()
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " ")
}

// clauseOrder is the order in which the contract's groups of clauses stand.
const clauseOrder = "SARKTEGFXCH"

// compareClauses orders clause ids: by group in the contract's order, then by number.
func compareClauses(a, b string) int {
	ga, na := splitClause(a)
	gb, nb := splitClause(b)
	if ga != gb {
		return ga - gb
	}
	return na - nb
}

func splitClause(id string) (group, number int) {
	if id == "" {
		return len(clauseOrder), 0
	}
	group = strings.IndexByte(clauseOrder, id[0])
	_, _ = fmt.Sscanf(id[1:], "%d", &number)
	return group, number
}
