package checkpoint

import (
	"time"

	"github.com/belay-run/belay/claim"
)

// Kind is how a commit leaves the claim.
type Kind uint8

// The kinds of schedule. The zero kind is invalid.
const (
	// Retain keeps the claim; only a commit under a claim may.
	Retain Kind = iota + 1
	// ReleaseNow gives the claim back, due at once.
	ReleaseNow
	// ReleaseAt gives the claim back, due at an instant, which may be past.
	ReleaseAt
	// ReleaseExternal gives the claim back; the run waits for a signal.
	ReleaseExternal
	// ReleaseTerminal gives the claim back for good.
	ReleaseTerminal
)

// String names the kind: "retain", "release-now", ...
func (k Kind) String() string {
	switch k {
	case Retain:
		return "retain"
	case ReleaseNow:
		return "release-now"
	case ReleaseAt:
		return "release-at"
	case ReleaseExternal:
		return "release-external"
	case ReleaseTerminal:
		return "release-terminal"
	}
	return "unknown"
}

// Schedule is how a commit leaves the claim and when the run is next due.
type Schedule struct {
	Kind Kind
	At   time.Time // only with ReleaseAt
}

// Valid reports whether the kind is known and At is set exactly with ReleaseAt.
func (s Schedule) Valid() bool {
	return s.Kind >= Retain && s.Kind <= ReleaseTerminal && (s.Kind == ReleaseAt) == !s.At.IsZero()
}

// Apply is the claim state after a commit at now (clause T2): counters and poison
// cleared; retain keeps the claim and moves claimed-at forward, release-now and
// release-at set the wake, external and terminal leave neither. A schedule that is
// not Valid leaves the state as it is, as does retain without a claim.
func (s Schedule) Apply(st claim.State, now time.Time) claim.State {
	if !s.Valid() {
		return st
	}
	switch s.Kind {
	case Retain:
		return st.Retain(now)
	case ReleaseNow:
		return claim.State{Wake: claim.Instant(now)}
	case ReleaseAt:
		return claim.State{Wake: claim.Instant(s.At)}
	case ReleaseExternal, ReleaseTerminal:
		return claim.State{}
	}
	return st
}
