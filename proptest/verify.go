package proptest

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Suite is what one part of the kit came to.
type Suite struct {
	// Name is "check" or "linearizable".
	Name   string        `json:"name"`
	Passed bool          `json:"passed"`
	Took   time.Duration `json:"took_ns"`
	// Says is the coverage of a suite that passed, and what went wrong in one that failed.
	Says string `json:"says"`
}

// Verification is what Verify found.
type Verification struct {
	Conformance Report  `json:"conformance"`
	Suites      []Suite `json:"suites"`
}

// Passed reports whether nothing failed. What was untested does not count against it.
func (v Verification) Passed() bool {
	for _, s := range v.Suites {
		if !s.Passed {
			return false
		}
	}
	return v.Conformance.Passed()
}

// String is the verification as a person reads it.
func (v Verification) String() string {
	var b strings.Builder
	b.WriteString(v.Conformance.String())
	for _, s := range v.Suites {
		result := Passed
		if !s.Passed {
			result = Failed
		}
		fmt.Fprintf(&b, "\n%s: %s in %v\n%s", s.Name, result, s.Took.Round(time.Millisecond), s.Says)
	}
	return b.String()
}

// Verify runs Conformance, Check and Linearizable outside of any test, Check with the given number of
// histories and Linearizable with as many more or less (0: the default, 100). It reads no command line and leaves no files
// behind but the drawing of a failed history. It is not for use within a test, nor twice at the
// same time: it sets rapid's flags while it runs.
func Verify(open Opener, checks int, o Options) Verification {
	defer standalone(checks)()
	var v Verification
	var failure strings.Builder
	note := func(format string, args ...any) { fmt.Fprintf(&failure, format+"\n", args...) }
	quiet := o
	quiet.Log = func(string) {}
	begun := Attempt("conformance", note, func(t T) { v.Conformance = Conformance(t, open, quiet) })
	if !begun && v.Conformance.Passed() {
		// It ended before it could report.
		v.Conformance.Findings = append(v.Conformance.Findings, Finding{Case: "conformance", Result: Failed, Why: failure.String()})
	}
	for _, s := range []struct {
		name string
		run  func(T, Opener, Options)
	}{{"check", Check}, {"linearizable", Linearizable}} {
		var said, logged strings.Builder
		quiet.Log = func(text string) { said.WriteString(text) }
		from := time.Now()
		passed := Attempt(s.name, func(format string, args ...any) { fmt.Fprintf(&logged, format+"\n", args...) }, func(t T) { s.run(t, open, quiet) })
		suite := Suite{Name: s.name, Passed: passed, Took: time.Since(from), Says: strings.TrimRight(said.String(), "\n") + "\n"}
		if !passed {
			suite.Says = logged.String()
		}
		v.Suites = append(v.Suites, suite)
	}
	return v
}

// standalone makes rapid work where no test runs, without files of failures, and hands back what
// ends that.
func standalone(checks int) (restore func()) {
	testing.Init()
	if !flag.Parsed() {
		_ = flag.CommandLine.Parse(nil) // no arguments, no error
	}
	set := map[string]string{"rapid.nofailfile": "true"}
	if checks > 0 {
		set["rapid.checks"] = strconv.Itoa(checks)
	}
	before := map[string]string{}
	for name, value := range set {
		if f := flag.Lookup(name); f != nil {
			before[name] = f.Value.String()
			_ = f.Value.Set(value)
		}
	}
	return func() {
		for name, value := range before {
			_ = flag.Lookup(name).Value.Set(value)
		}
	}
}
