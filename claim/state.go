package claim

import (
	"fmt"
	"time"
)

// Instant is t as belay compares and stores it: UTC, truncated to microseconds,
// without a monotonic reading. The zero time stays zero. Clause A2.
func Instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// Class is why a run may be claimed.
type Class uint8

const (
	// NoClass is no preference, or not claimable.
	NoClass Class = iota
	// Ready is a run without a claim whose wake has come.
	Ready
	// Expired is a run whose claim is strictly older than the TTL.
	Expired
)

// String names the class.
func (c Class) String() string {
	switch c {
	case NoClass:
		return "none"
	case Ready:
		return "ready"
	case Expired:
		return "expired"
	}
	return "unknown"
}

// Poison reasons.
const (
	MaxAttemptsExceeded = "max_claim_attempts_exceeded"
	MaxAbandonsExceeded = "max_claim_abandons_exceeded"
)

// Poison parks a run until an operator recovers it.
type Poison struct {
	At     time.Time
	Reason string
}

// State is the operational half of a run (clause S1). The zero State is idle: no
// claim, no wake, no poison, counters zero (a waiting or finished run). A healthy
// running run has exactly one of Wake and Token. Zero times mean "none".
//
// Its methods answer the next state and never touch the receiver. The instants
// they store are Instants, whatever they were given.
type State struct {
	Wake      time.Time
	Token     Token
	ClaimedAt time.Time
	Attempts  int
	Abandons  int
	Poison    Poison // zero: not poisoned
}

// Class derives the class of a running run at now, and the instant it became
// eligible: its wake when ready, its claimed-at when expired (strictly older
// than ttl; deliberately not claimed-at + ttl). Clause K1.
func (s State) Class(now time.Time, ttl time.Duration) (Class, time.Time) {
	now = Instant(now)
	switch {
	case s.Poison != (Poison{}):
		return NoClass, time.Time{}
	case s.Token != "":
		if s.ClaimedAt.Before(now.Add(-ttl)) {
			return Expired, s.ClaimedAt
		}
	case !s.Wake.IsZero() && !s.Wake.After(now):
		return Ready, s.Wake
	}
	return NoClass, time.Time{}
}

// Valid reports whether s is one of the shapes of a running run (ready or
// scheduled, claimed, poisoned) or, with running false, the idle shape. The error
// matches ErrInvalidState and says which rule of clause S1 is broken.
func (s State) Valid(running bool) error {
	if s.Attempts < 0 || s.Abandons < 0 {
		return fmt.Errorf("%w: negative counters (attempts %d, abandons %d)", ErrInvalidState, s.Attempts, s.Abandons)
	}
	if (s.Token != "") != !s.ClaimedAt.IsZero() {
		return fmt.Errorf("%w: token and claimed-at must be set together", ErrInvalidState)
	}
	if (s.Poison.Reason != "") != !s.Poison.At.IsZero() {
		return fmt.Errorf("%w: a poison must have both an instant and a reason", ErrInvalidState)
	}
	if !running {
		if s != (State{}) {
			return fmt.Errorf("%w: a run that is not running has no wake, claim, poison or counters", ErrInvalidState)
		}
		return nil
	}
	holds := 0
	for _, set := range []bool{!s.Wake.IsZero(), s.Token != "", s.Poison.Reason != ""} {
		if set {
			holds++
		}
	}
	if holds != 1 {
		return fmt.Errorf("%w: a running run has exactly one of wake, claim and poison, not %d", ErrInvalidState, holds)
	}
	return nil
}

// Acquire claims the run: token and claimed-at set, wake cleared, attempts + 1;
// or, with attempts already at maxAttempts, poisons it (claim and wake cleared,
// attempts unchanged). The caller has checked Class. Clause K3.
func (s State) Acquire(now time.Time, token Token, maxAttempts int) (next State, poisoned bool) {
	if s.Attempts >= maxAttempts {
		s.park(now, MaxAttemptsExceeded)
		return s, true
	}
	s.Wake = time.Time{}
	s.Token = token
	s.ClaimedAt = Instant(now)
	s.Attempts++
	return s, false
}

// Refresh moves claimed-at forward, never back, under the current token. Any other
// token, and any token of an unclaimed run, is ErrClaimLost. Clauses K7 and A4.
func (s State) Refresh(token Token, now time.Time) (State, error) {
	if !s.heldBy(token) {
		return s, ErrClaimLost
	}
	s.ClaimedAt = later(s.ClaimedAt, Instant(now))
	return s, nil
}

// Release gives the claim back: due at p.Now + p.After, attempts kept or, with a
// refund, one less. changed is false for a token that is not the current one, and
// nothing is touched. p.Now is set by the caller. Clause K8.
func (s State) Release(token Token, p ReleasePolicy) (next State, changed bool) {
	if !s.heldBy(token) {
		return s, false
	}
	s.due(p.Now.Add(p.After))
	if p.Refund {
		s.refund()
	}
	return s, true
}

// Abandon hands back a claim before execution began. seq is the stored checkpoint
// sequence; p.Now is set by the caller. Clause K9.
func (s State) Abandon(token Token, seq int64, p AbandonPolicy) (State, Disposition) {
	if !s.heldBy(token) || seq != p.ExpectedSeq {
		return s, Stale
	}
	s.refund()
	if !p.NeverPoison && s.Abandons >= p.MaxAbandons {
		s.park(p.Now, MaxAbandonsExceeded)
		return s, Poisoned
	}
	s.due(p.wake(s.Abandons))
	s.Abandons++
	return s, Rescheduled
}

// Recover frees a poisoned run: poison and claim cleared, counters zero, due at
// now. changed is false when the run is not poisoned, and nothing is touched.
// Clause K10.
func (s State) Recover(now time.Time) (next State, changed bool) {
	if s.Poison == (Poison{}) {
		return s, false
	}
	return State{Wake: Instant(now)}, true
}

// Retain keeps the claim through a commit: claimed-at = max(claimed-at, now),
// no wake, counters and poison cleared. Without a claim there is nothing to retain
// and nothing is touched. Clause T2.
func (s State) Retain(now time.Time) State {
	if s.Token == "" {
		return s
	}
	return State{Token: s.Token, ClaimedAt: later(s.ClaimedAt, Instant(now))}
}

// heldBy is false for the empty token, which holds nothing.
func (s State) heldBy(token Token) bool { return token != "" && s.Token == token }

func (s *State) due(wake time.Time) {
	s.Wake = Instant(wake)
	s.Token, s.ClaimedAt = "", time.Time{}
}

func (s *State) park(now time.Time, reason string) {
	s.Wake = time.Time{}
	s.Token, s.ClaimedAt = "", time.Time{}
	s.Poison = Poison{At: Instant(now), Reason: reason}
}

func (s *State) refund() { s.Attempts = max(0, s.Attempts-1) }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
