package run

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belay-run/belay/claim"
)

// Bounds of a run's metadata, which a host gives at the start and which never
// changes. Keys are 1 to MaxMetadataKey bytes, values up to MaxMetadataValue, both
// UTF-8 without NUL.
const (
	MaxMetadata      = 64 // entries
	MaxMetadataKey   = 255
	MaxMetadataValue = 4096
)

// checkMetadata answers *claim.ArgumentError for the first entry, by key, out of bounds.
func checkMetadata(m map[string]string) error {
	if len(m) == 0 {
		return nil
	}
	if len(m) > MaxMetadata {
		return &claim.ArgumentError{Argument: "metadata", Reason: fmt.Sprintf("has %d entries, at most %d are kept", len(m), MaxMetadata)}
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		v := m[k]
		switch {
		case k == "" || len(k) > MaxMetadataKey || !plain(k):
			return &claim.ArgumentError{Argument: "metadata", Reason: fmt.Sprintf("key %q must be 1 to %d bytes of UTF-8 without NUL", k, MaxMetadataKey)}
		case len(v) > MaxMetadataValue || !plain(v):
			return &claim.ArgumentError{Argument: "metadata", Reason: fmt.Sprintf("value of %q must be at most %d bytes of UTF-8 without NUL", k, MaxMetadataValue)}
		}
	}
	return nil
}

func plain(s string) bool {
	return utf8.ValidString(s) && !strings.Contains(s, "\x00")
}
