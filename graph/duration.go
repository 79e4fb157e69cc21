package graph

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/belay-run/belay/value"
)

// notationError is a text that writes no duration or factor, or the reverse. It matches
// value.ErrInvalid.
type notationError struct{ reason string }

func (e *notationError) Error() string { return "belay: " + e.reason }

func (e *notationError) Is(target error) bool { return target == value.ErrInvalid }

func notation(format string, args ...any) error {
	return &notationError{fmt.Sprintf(format, args...)}
}

// ParseDuration reads "30s", "1m30s" or "250ms": not negative, in whole microseconds.
func ParseDuration(text string) (Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, notation("%q is not a duration: write one like \"30s\" or \"1m30s\"", text)
	case d < 0:
		return 0, notation("the duration %q is negative: write a positive one", text)
	case d%time.Microsecond != 0:
		return 0, notation("the duration %q is finer than a microsecond: write whole microseconds", text)
	}
	return Duration(d), nil
}

// String is the shortest usual form, "1h30m" rather than "1h30m0s".
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return strings.Replace(s, "µs", "us", 1)
}

// MarshalJSON writes the duration as a string; a part of a microsecond is refused.
func (d Duration) MarshalJSON() ([]byte, error) {
	if d < 0 || time.Duration(d)%time.Microsecond != 0 {
		return nil, notation("the duration %v is not in whole microseconds, or negative", time.Duration(d))
	}
	return json.Marshal(d.String())
}

// UnmarshalJSON reads what MarshalJSON writes.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return notation("a duration is a string like \"30s\"")
	}
	parsed, err := ParseDuration(text)
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

// ParseThousandths reads a decimal number with at most three places, such as 2 or 1.5.
func ParseThousandths(text string) (Thousandths, error) {
	wrong := notation("%q is not a factor: write a plain number with at most three places, such as 1.5", text)
	digits, negative := strings.CutPrefix(text, "-")
	whole, places, point := strings.Cut(digits, ".")
	if point && places == "" || len(places) > 3 || whole == "" {
		return 0, wrong
	}
	for len(places) < 3 {
		places += "0"
	}
	for _, c := range whole + places {
		if c < '0' || c > '9' {
			return 0, wrong
		}
	}
	n, err := strconv.ParseInt(whole+places, 10, 64)
	if err != nil || n == math.MaxInt64 {
		return 0, wrong
	}
	if negative {
		n = -n
	}
	return Thousandths(n), nil
}

// String is the factor as a plain decimal number.
func (t Thousandths) String() string {
	n, sign := int64(t), ""
	if n < 0 {
		n, sign = -n, "-"
	}
	s := fmt.Sprintf("%s%d.%03d", sign, n/1000, n%1000)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// MarshalJSON writes the factor as a number.
func (t Thousandths) MarshalJSON() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalJSON reads what MarshalJSON writes.
func (t *Thousandths) UnmarshalJSON(raw []byte) error {
	parsed, err := ParseThousandths(string(raw))
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}
