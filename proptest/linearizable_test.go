package proptest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/proptest"
)

func TestMemoryIsLinearizable(t *testing.T) {
	proptest.Linearizable(t, open, proptest.Options{})
}

// TestLinearizableFindsRaces plants faults that only calls at the same time show, and expects a
// history that can be read and one that can be looked at.
func TestLinearizableFindsRaces(t *testing.T) {
	races := map[string]func(b *broken){
		"an inspect of two reads": func(b *broken) {
			b.inspectRun = func(s backend.Scope, id string) (backend.Info, error) {
				first, err := b.Store.InspectRun(ctx, s, id)
				if err != nil {
					return first, err
				}
				time.Sleep(50 * time.Microsecond)
				second, err := b.Store.InspectRun(ctx, s, id)
				second.Wake, second.ClaimedAt, second.Attempts = first.Wake, first.ClaimedAt, first.Attempts
				return second, err
			}
		},
		"a fence that is looked at before the write": func(b *broken) {
			b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
				if b.Store.RefreshClaim(ctx, c.Document.ID, c.Token, c.Document.StartedAt.Add(-time.Hour)) == nil {
					time.Sleep(200 * time.Microsecond)
					c.Token = b.token(c.Document.ID, c.Token)
				}
				return b.Store.Commit(ctx, s, c)
			}
		},
	}
	for name, breaks := range races {
		t.Run(name, func(t *testing.T) {
			open := func(t proptest.T) proptest.Opened {
				b := newBroken(memory.Options{})
				breaks(b)
				t.Cleanup(func() { _ = b.Close() })
				return proptest.Opened{Store: b}
			}
			var text strings.Builder
			say := func(format string, args ...any) { writef(&text, format, args...) }
			dir := t.TempDir()
			o := proptest.Options{Histories: 500, Artifacts: dir}
			if proptest.Attempt("race", say, func(t proptest.T) { proptest.Linearizable(t, open, o) }) {
				t.Fatal("it is not found")
			}
			if !strings.Contains(text.String(), "worker ") || !strings.Contains(text.String(), "seed ") {
				t.Errorf("the history cannot be read:\n%s", text.String())
			}
			pages, err := filepath.Glob(filepath.Join(dir, "belay-history-*.html"))
			if err != nil || len(pages) == 0 {
				t.Fatalf("no history is drawn: %v", err)
			}
			if page, err := os.ReadFile(pages[0]); err != nil || !strings.Contains(string(page), "<html") {
				t.Errorf("the page is not one: %v", err)
			}
		})
	}
}

// TestACallWithoutAnAnswerFails: a store that hangs is told, with what it was asked.
func TestACallWithoutAnAnswerFails(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	open := func(t proptest.T) proptest.Opened {
		b := newBroken(memory.Options{})
		b.inspectRun = func(s backend.Scope, id string) (backend.Info, error) {
			<-release
			return b.Store.InspectRun(ctx, s, id)
		}
		return proptest.Opened{Store: b}
	}
	var text strings.Builder
	say := func(format string, args ...any) { writef(&text, format, args...) }
	o := proptest.Options{Histories: 1, Timeout: 20 * time.Millisecond}
	if proptest.Attempt("hang", say, func(t proptest.T) { proptest.Linearizable(t, open, o) }) {
		t.Fatal("it passed")
	}
	if !strings.Contains(text.String(), "without an answer") || !strings.Contains(text.String(), "inspects") {
		t.Errorf("it says %q", text.String())
	}
}
