package proptest_test

import (
	"encoding/json"
	"flag"
	"strings"
	"testing"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/proptest"
)

func TestVerifyReportsAllOfTheKit(t *testing.T) {
	o := proptest.Options{Only: []string{"K9", "T2"}, Rounds: 1}
	v := proptest.Verify(open, 5, o)
	if !v.Passed() {
		t.Errorf("the memory backend does not pass:\n%s", v)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"K9.`, `"name":"check","passed":true`, `"name":"linearizable","passed":true`, "actions", "1 histories"} {
		if !strings.Contains(string(raw), part) {
			t.Errorf("the report lacks %s:\n%s", part, raw)
		}
	}
	if checks := flag.Lookup("rapid.checks").Value.String(); checks == "5" {
		t.Error("it leaves its number of checks behind")
	}
}

func TestVerifyFailsByEachOfItsParts(t *testing.T) {
	lies := func(t proptest.T) proptest.Opened {
		b := newBroken(memory.Options{})
		b.lies(func(i *backend.Info) { i.Attempts++ })
		t.Cleanup(func() { _ = b.Close() })
		return proptest.Opened{Store: b}
	}
	v := proptest.Verify(lies, 5, proptest.Options{Only: []string{"K3"}, Artifacts: t.TempDir()})
	if v.Conformance.Passed() || v.Suites[0].Passed || v.Suites[1].Passed || v.Passed() {
		t.Errorf("a part passed:\n%s", v)
	}
	if !strings.Contains(v.String(), "what happened") || !strings.Contains(v.String(), "failed K3.") {
		t.Errorf("it does not tell what went wrong:\n%s", v)
	}
}
