package backend_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

func TestACursorSurvivesItsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := backend.Cursor{
			StartedAt: claim.Instant(time.UnixMicro(rapid.Int64Range(-1e15, 1e16).Draw(t, "at"))),
			Run:       rapid.StringMatching(`[^\x00]{0,40}`).Draw(t, "run"),
		}
		text, err := want.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var got backend.Cursor
		if err := got.UnmarshalText(text); err != nil {
			t.Fatal(err)
		}
		if !got.StartedAt.Equal(want.StartedAt) || got.Run != want.Run {
			t.Fatalf("%s: %v, want %v", text, got, want)
		}
	})
	var none backend.Cursor
	if text, err := none.MarshalText(); err != nil || len(text) > 0 {
		t.Errorf("no cursor is %q, %v", text, err)
	}
	if err := none.UnmarshalText(nil); err != nil || none != (backend.Cursor{}) {
		t.Errorf("the empty text is %v, %v", none, err)
	}
}

func TestATextThatIsNoCursorIsRefused(t *testing.T) {
	for _, text := range []string{"x", ",run", "2026-01-31", "2026-01-31T12:00:00Z,a\x00b", "2026-01-31T12:00:00Z," + strings.Repeat("a", 256), "2026-01-31T12:00:00Z,\xff"} {
		var c backend.Cursor
		err := c.UnmarshalText([]byte(text))
		if !errors.Is(err, backend.ErrInvalidArgument) || c != (backend.Cursor{}) {
			t.Errorf("%q: %v, %v", text, c, err)
		}
	}
}
