package proptest_test

import (
	"strings"
	"testing"

	"github.com/belay-run/belay/proptest"
)

func TestReplayTellsAnAnswerThatIsAnother(t *testing.T) {
	const history = "\nplay\ninsert r1\nclaim limit=1 at=1s\n----\ninsert r1 -> stored\nclaim limit=1 at=1s -> "
	var said strings.Builder
	say := func(format string, args ...any) { writef(&said, format, args...) }
	if !proptest.Attempt("right", say, func(t proptest.T) { proptest.Replay(t, open, history+"L1 = r1, attempt 1\n") }) {
		t.Errorf("the right answer fails:\n%s", said.String())
	}
	if proptest.Attempt("another", say, func(t proptest.T) { proptest.Replay(t, open, history+"nothing\n") }) {
		t.Error("another answer passes")
	}
	for _, nonsense := range []string{"dance r1", "insert r1 colour=red", "commit L9 done", "claim limit=many"} {
		if proptest.Attempt("nonsense", nil, func(t proptest.T) { proptest.Replay(t, open, "\nplay\n"+nonsense+"\n----\n\n") }) {
			t.Errorf("%q passes for a call", nonsense)
		}
	}
}
