package proptest

import (
	"fmt"
	"strings"
	"time"

	"github.com/belay-run/belay/claim"
)

// transcript is what a Check did, one line a call, with instants told from the start and
// tokens by the names of the leases that carried them.
type transcript struct {
	start time.Time
	lines []string
	names map[claim.Token]string
}

func newTranscript(start time.Time) *transcript {
	return &transcript{start: start, names: map[claim.Token]string{}}
}

func (t *transcript) add(format string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf("%3d. ", len(t.lines)+1)+fmt.Sprintf(format, args...))
}

// answered completes the last line.
func (t *transcript) answered(got string) {
	t.lines[len(t.lines)-1] += "  ->  " + got
}

// at is an instant, told from the start.
func (t *transcript) at(now time.Time) string {
	if now.IsZero() {
		return "-"
	}
	d := now.Sub(t.start)
	if d < 0 {
		return d.String()
	}
	return "+" + d.String()
}

func (t *transcript) String() string { return strings.Join(t.lines, "\n") }
