package sqlite_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also the entry of the processes that some tests start.
func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(child(role))
	}
	flag.Parse()
	given := os.Getenv("RAPID_CHECKS") != ""
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		// Each step of a random history looks at the whole store, and SQLite is slow under the
		// race detector.
		if err := flag.Set("rapid.checks", checks); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(withPeers{m})
}

// withPeers ends the processes that tests have started before leaks are looked for.
type withPeers struct{ *testing.M }

func (w withPeers) Run() int {
	code := w.M.Run()
	if err := peers.End(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}
