package proptest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/checkpoint"
	kills "github.com/belay-run/belay/internal/mutant"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/run"
)

func openYielding(t proptest.T, yield func(string)) proptest.Opened {
	store := memory.New(memory.Options{Yield: yield})
	t.Cleanup(func() { _ = store.Close() })
	return proptest.Opened{Store: store}
}

func TestMemoryIsRightInEveryInterleaving(t *testing.T) {
	var said strings.Builder
	depth := 2
	if raceDetector {
		depth = 1 // turns are taken one at a time: there is nothing to race
	}
	proptest.Interleave(t, openYielding, proptest.Options{Depth: depth, Log: func(text string) { writef(&said, "%s", text) }})
	t.Logf("%s", said.String())
	if !strings.Contains(said.String(), "states visited") {
		t.Error("it does not say how many states were visited")
	}
}

// TestInterleaveFindsRaces plants faults that no history of calls one after the other shows.
func TestInterleaveFindsRaces(t *testing.T) {
	races := []struct {
		name     string
		explored bool // the exploration finds it too
		breaks   func(b *broken, yield func(string))
	}{
		{"an inspect of two reads", false, func(b *broken, yield func(string)) {
			b.inspectRun = func(s backend.Scope, id string) (backend.Info, error) {
				first, err := b.Store.InspectRun(ctx, s, id)
				if err != nil {
					return first, err
				}
				yield("between two reads")
				second, err := b.Store.InspectRun(ctx, s, id)
				second.Wake, second.ClaimedAt, second.Attempts = first.Wake, first.ClaimedAt, first.Attempts
				return second, err
			}
		}},
		{"a fence that is looked at before the write", false, func(b *broken, yield func(string)) {
			b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
				if b.Store.RefreshClaim(ctx, c.Document.ID, c.Token, c.Document.StartedAt.Add(-time.Hour)) == nil {
					yield("between the fence and the write")
					c.Token = b.token(c.Document.ID, c.Token)
				}
				return b.Store.Commit(ctx, s, c)
			}
		}},
		{"a cancel that a commit beside it swallows", true, func(b *broken, yield func(string)) {
			b.mutateRun = func(s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
				before, err := b.Store.FetchRun(ctx, s, id)
				if err != nil {
					return backend.Mutated{}, err
				}
				yield("between the look and the write")
				swallowed := false
				m, err := b.Store.MutateRun(ctx, s, id, c, func(current *run.Document) (backend.Mutation, error) {
					if swallowed = current.Seq != before.Seq; swallowed {
						return backend.Mutation{}, nil
					}
					return fn(current)
				})
				m.Committed = m.Committed || swallowed
				return m, err
			}
		}},
	}
	kills.SetFlags(t, map[string]string{"rapid.shrinktime": "0s", "rapid.nofailfile": "true", "rapid.seed": "7"})
	for _, race := range races {
		open := func(t proptest.T, yield func(string)) proptest.Opened {
			b := newBroken(memory.Options{Yield: yield})
			race.breaks(b, yield)
			t.Cleanup(func() { _ = b.Close() })
			return proptest.Opened{Store: b}
		}
		plain := func(t proptest.T) proptest.Opened { return open(t, func(string) {}) }
		quiet := proptest.Options{Depth: 2, Rounds: 1, Log: func(string) {}}
		for _, checks := range []string{"100", "0"} { // without draws, the exploration alone
			if checks == "0" && !race.explored {
				continue
			}
			kills.SetFlags(t, map[string]string{"rapid.checks": checks})
			var text strings.Builder
			say := func(format string, args ...any) { writef(&text, format, args...) }
			if proptest.Attempt("race", say, func(t proptest.T) { proptest.Interleave(t, open, quiet) }) {
				t.Errorf("%s, with %s draws: it is not found", race.name, checks)
			} else if !strings.Contains(text.String(), `stops at "between`) {
				t.Errorf("%s, with %s draws: the history does not show it:\n%s", race.name, checks, text.String())
			}
		}
		sequential := "20"
		if raceDetector {
			sequential = "3"
		}
		kills.SetFlags(t, map[string]string{"rapid.checks": sequential})
		if !proptest.Attempt("one after the other", nil, func(t proptest.T) { proptest.Check(t, plain, quiet) }) {
			t.Errorf("%s: a history of calls one after the other shows it as well", race.name)
		}
	}
}
