//go:build unix

package sqlite

import (
	"errors"
	"os"
	"testing"
)

// TestANewNameReplacesNothing: whoever has the name first keeps it.
func TestANewNameReplacesNothing(t *testing.T) {
	for name, rename := range map[string]func(from, to string) error{"rename": renameNew, "link": linkNew} {
		from := freshFile(t)
		to := from + ".to"
		must(t, os.WriteFile(from, []byte("from"), 0o600))
		must(t, os.WriteFile(to, []byte("to"), 0o600))
		if err := rename(from, to); !errors.Is(err, os.ErrExist) {
			t.Errorf("%s: %v", name, err)
		}
		must(t, os.Remove(to))
		must(t, rename(from, to))
		if raw, err := os.ReadFile(to); err != nil || string(raw) != "from" {
			t.Errorf("%s: %q %v", name, raw, err)
		}
		if _, err := os.Lstat(from); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the old name is left: %v", name, err)
		}
	}
}
