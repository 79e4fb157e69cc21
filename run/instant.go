package run

import (
	"time"

	"github.com/belay-run/belay/claim"
)

// latest is the last instant that may be stored: the end of the year 9999, where
// RFC 3339 and the databases' calendars end. Later ones saturate to it.
var latest = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)

// instant is t as the machine stores it: claim.Instant, saturating at latest.
// What lies before the year 1 becomes the zero time, which is none.
func instant(t time.Time) time.Time {
	t = claim.Instant(t)
	switch {
	case t.After(latest):
		return latest
	case t.Before(time.Time{}):
		return time.Time{}
	}
	return t
}

// storableInstant reports whether t is in the form that instant gives.
func storableInstant(t time.Time) bool {
	return t == t.UTC() && t.Nanosecond()%1000 == 0 && !t.After(latest) && !t.Before(time.Time{})
}

// after is t + micros, saturating.
func after(t time.Time, micros int64) time.Time {
	if room := latest.UnixMicro() - t.UnixMicro(); micros >= room {
		return latest
	}
	return time.UnixMicro(t.UnixMicro() + micros).UTC()
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// due: a timer at t has come. The instant itself counts, as it does for a wake.
func due(t, now time.Time) bool { return !t.After(now) }
