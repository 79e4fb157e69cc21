package proptest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
)

// Options configures the kit.
type Options struct {
	// Only, when not empty, runs the cases whose id is one of these or begins with one of
	// these and a dot: "K3", "K3.max-attempts".
	Only []string
	// Timeout bounds one case, by its context. Defaults to one minute.
	Timeout time.Duration
	// Rounds is how many rounds of actions one check of Check makes; a round is 30 actions
	// on average (-rapid.steps). Defaults to 4.
	Rounds int
	// Depth is how many calls the histories have that Interleave tries in every order.
	// Defaults to 2.
	Depth int
	// Histories is how many histories Linearizable judges, at 100 checks (-rapid.checks);
	// with more checks there are as many times more. Defaults to 20.
	Histories int
	// Artifacts is the folder where a failing history of Linearizable is drawn. Defaults to
	// the system's folder for temporary files.
	Artifacts string
	// Log, when set, gets the report (Conformance) and the coverage (Check) as text; by
	// default they go to the test's log.
	Log func(text string)
}

func (o Options) withDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.Rounds == 0 {
		o.Rounds = 4
	}
	if o.Depth == 0 {
		o.Depth = 2
	}
	if o.Histories == 0 {
		o.Histories = 20
	}
	if o.Artifacts == "" {
		o.Artifacts = os.TempDir()
	}
	return o
}

func (o Options) log(t T, text string) {
	t.Helper()
	if o.Log != nil {
		o.Log(text)
		return
	}
	t.Logf("%s", text)
}

// Case is one rule of the contract, to be proved.
type Case struct {
	// ID is stable: the clause, a dot and a name.
	ID string
	// Says is the rule, in one sentence.
	Says string

	needs []need
	run   func(r *rig)
}

// Clause is the id of the clause the case proves.
func (c Case) Clause() string {
	clause, _, _ := strings.Cut(c.ID, ".")
	return clause
}

// need is something a case cannot be tried without.
type need struct {
	name string
	met  func(backend.Features, Hooks) bool
}

// lacks is the need of a store that does not declare a feature.
func lacks(feature need) need {
	return need{name: noLack + feature.name, met: func(f backend.Features, h Hooks) bool { return !feature.met(f, h) }}
}

// noLack begins the name of a need that is unmet where nothing is missing: the case is
// about stores of another kind.
const noLack = "lack of "

// The features, in the order of their ids.
var (
	startClaimed   = need{"feature X1", func(f backend.Features, _ Hooks) bool { return f.StartClaimed }}
	batches        = need{"feature X2", func(f backend.Features, _ Hooks) bool { return f.Batches != nil }}
	claimDocuments = need{"feature X3", func(f backend.Features, _ Hooks) bool { return f.ClaimDocuments != nil }}
	claimFilter    = need{"feature X4", func(f backend.Features, _ Hooks) bool { return f.ClaimFilter }}
	wakes          = need{"feature X5", func(f backend.Features, _ Hooks) bool { return f.Wakes != nil }}
	ownClock       = need{"feature X6", func(f backend.Features, _ Hooks) bool { return f.Clock != nil }}
	retention      = need{"feature X7", func(f backend.Features, _ Hooks) bool { return f.Retention != nil }}
	ownerCap       = need{"feature X10", func(f backend.Features, _ Hooks) bool { return f.OwnerCap }}
)

// The hooks. X8 and X9 are no part of a store's interface: the hook is their declaration.
var (
	writeDocument = need{"hook WriteDocument", func(_ backend.Features, h Hooks) bool { return h.WriteDocument != nil }}
	writeEvent    = need{"hook WriteEvent", func(_ backend.Features, h Hooks) bool { return h.WriteEvent != nil }}
	writeGraph    = need{"hook WriteGraph", func(_ backend.Features, h Hooks) bool { return h.WriteGraph != nil }}
	lockRun       = need{"hook LockRun", func(_ backend.Features, h Hooks) bool { return h.LockRun != nil }}
	setClock      = need{"hook SetClock", func(_ backend.Features, h Hooks) bool { return h.SetClock != nil }}
	reopen        = need{"hook Reopen", func(_ backend.Features, h Hooks) bool { return h.Reopen != nil }}
	host          = need{"hook Host (feature X8)", func(_ backend.Features, h Hooks) bool { return h.Host != nil }}
	audit         = need{"hook Audit (feature X9)", func(_ backend.Features, h Hooks) bool { return h.Audit != nil }}
	trouble       = need{"hook Trouble", func(_ backend.Features, h Hooks) bool { return h.Trouble != nil }}
)

var (
	features = []need{startClaimed, batches, claimDocuments, claimFilter, wakes, ownClock, retention, host, audit, ownerCap}
	hooks    = []need{writeDocument, writeEvent, writeGraph, lockRun, setClock, reopen, host, audit, trouble}
)

// featureID is the X of a feature's name.
func (n need) featureID() string {
	i := strings.IndexByte(n.name, 'X')
	return strings.TrimSuffix(n.name[i:], ")")
}

// hookName is the name of the hook's field.
func (n need) hookName() string {
	return strings.Fields(n.name)[1]
}

// Cases lists every case, in the order of the contract.
func Cases() []Case {
	all := slices.Concat(
		shapeCases, argumentCases, instantCases, tokenCases, absenceCases,
		insertCases, keyCases, startClaimedCases, readCases, listCases,
		dueCases, reservationCases, outcomeCases, lockCases, interleaveCases, documentCases,
		refreshCases, releaseCases, abandonCases, recoverCases,
		commitOrderCases, commitCases, mutateCases, refusalCases, replayCases, resendCases, troubleCases, groupCases, groupEffectCases,
		eventCases, graphCases, hostCases, featureCases, retentionCases,
		concurrencyCases, invariantCases, hazardCases, cornerCases,
	)
	slices.SortStableFunc(all, func(a, b Case) int { return compareClauses(a.Clause(), b.Clause()) })
	return all
}

// Conformance runs every case against a store of its own and reports what was proved.
// A case whose hook or feature is absent is untested; a failed one fails t. A case about
// stores that lack a feature is not in the report of one that has it.
func Conformance(t T, open Opener, o Options) Report {
	t.Helper()
	o = o.withDefaults()
	var report Report
	for _, c := range Cases() {
		if !selected(c.ID, o.Only) {
			continue
		}
		finding := Finding{Case: c.ID, Clause: c.Clause(), Says: c.Says, Result: Failed, Why: "the store could not be opened"}
		begun, applies := time.Now(), true
		subtest(t, c.ID, func(t T) {
			opened := open(t)
			report.declare(opened)
			if missing := c.missing(opened); len(missing) > 0 {
				finding.Result, finding.Why = Untested, "no "+strings.Join(missing, ", no ")
				applies = !strings.HasPrefix(missing[0], noLack)
				t.Logf("untested: %s", finding.Why)
				return
			}
			w := &witness{T: t}
			defer func() {
				finding.Result, finding.Why = w.result()
			}()
			c.try(w, opened, o.Timeout)
		})
		finding.Took = time.Since(begun)
		if applies {
			report.Findings = append(report.Findings, finding)
		}
	}
	o.log(t, report.String())
	return report
}

// selected reports whether a case is asked for.
func selected(id string, only []string) bool {
	return len(only) == 0 || slices.ContainsFunc(only, func(prefix string) bool {
		return id == prefix || strings.HasPrefix(id, prefix+".")
	})
}

// missing lists what the case needs and the store lacks.
func (c Case) missing(o Opened) []string {
	var missing []string
	for _, n := range c.needs {
		if !n.met(o.Store.Features(), o.Hooks) {
			missing = append(missing, n.name)
		}
	}
	return missing
}

// try runs the case. A panic of the store is a failure, not the end of the process.
func (c Case) try(t T, o Opened, timeout time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("panic: %v\n%s", p, stack())
		}
	}()
	t.Logf("%s: %s", c.ID, c.Says)
	c.run(newRig(t, ctx, o))
}

// declare notes what the store declares. Every store of an opener declares the same.
func (r *Report) declare(o Opened) {
	if r.Declared != nil || r.Absent != nil {
		return
	}
	f := o.Store.Features()
	for _, n := range features {
		if n.met(f, o.Hooks) {
			r.Declared = append(r.Declared, n.featureID())
		} else {
			r.Absent = append(r.Absent, n.featureID())
		}
	}
	for _, n := range hooks {
		if n.met(f, o.Hooks) {
			r.Hooks = append(r.Hooks, n.hookName())
		}
	}
}

// witness is a T that keeps the first failure, for the report.
type witness struct {
	T
	first string
}

func (w *witness) Errorf(format string, args ...any) {
	w.T.Helper()
	w.note(fmt.Sprintf(format, args...))
	w.T.Errorf(format, args...)
}

func (w *witness) Fatalf(format string, args ...any) {
	w.T.Helper()
	w.note(fmt.Sprintf(format, args...))
	w.T.Fatalf(format, args...)
}

func (w *witness) note(text string) {
	if w.first == "" {
		w.first = text
	}
}

func (w *witness) result() (Result, string) {
	if !w.T.Failed() {
		return Passed, ""
	}
	return Failed, w.first
}
