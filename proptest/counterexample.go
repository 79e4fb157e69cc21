package proptest

import (
	"embed"
	"path"
	"slices"
	"strings"
)

//go:embed testdata/counterexamples/*.txt
var counterexamples embed.FS

// Counterexamples plays the histories on which a store once went wrong, and which are few calls long. One
// that needs what the store does not declare, or a hook that is not there, is left out.
func Counterexamples(t T, open Opener) {
	t.Helper()
	const dir = "testdata/counterexamples"
	files, err := counterexamples.ReadDir(dir)
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, f := range files {
		text, err := counterexamples.ReadFile(path.Join(dir, f.Name()))
		if err != nil {
			t.Fatalf("%v", err)
		}
		subtest(t, f.Name(), func(t T) { Replay(t, open, string(text)) })
	}
}

// Replay plays a counterexample that is written down as a datadriven test has it, the calls of a Player
// under "play" and the answers below "----":
//
//	# What went wrong, and the clause.
//	play
//	insert r1
//	claim limit=1 at=1s
//	----
//	insert r1 -> stored
//	claim limit=1 at=1s -> L1 = r1, attempt 1
//
// A line "# needs: LockRun, X7" names the hooks and features without which it cannot be tried.
func Replay(t T, open Opener, text string) {
	t.Helper()
	o := open(t)
	if missing := lacking(o, text); missing != "" {
		t.Logf("untested: no %s", missing)
		return
	}
	p := NewPlayer(t, o)
	for _, block := range strings.Split(text, "\nplay\n")[1:] {
		calls, rest, found := strings.Cut(block, "\n----\n")
		want, _, _ := strings.Cut(rest, "\n\n")
		if !found {
			t.Fatalf("after the calls there is no line of four dashes")
		}
		if got := strings.TrimSpace(p.Play(calls)); got != strings.TrimSpace(want) {
			t.Fatalf("what the store answers is not what it must be:\n%s\n\nit must be:\n%s", got, want)
		}
	}
}

// lacking is what a counterexample needs and a store has not; "" when there is nothing.
func lacking(o Opened, text string) string {
	for line := range strings.Lines(text) {
		needs, is := strings.CutPrefix(strings.TrimSpace(line), "# needs: ")
		if !is {
			continue
		}
		for _, name := range strings.Split(needs, ", ") {
			for _, n := range slices.Concat(features, hooks) {
				if (n.name == "feature "+name || n.name == "hook "+name) && !n.met(o.Store.Features(), o.Hooks) {
					return name
				}
			}
		}
	}
	return ""
}
