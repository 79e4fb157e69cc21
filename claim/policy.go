package claim

import (
	"strconv"
	"time"
)

// Fairness orders due runs of one class.
type Fairness uint8

const (
	// OldestFirst orders by (eligible-at, id).
	OldestFirst Fairness = iota
	// Interleave goes breadth first over owners: no owner gets a second outcome
	// before every owner with a due run got one; within an owner OldestFirst.
	Interleave
)

// GraphFilter names one graph, or with an empty Hash every version of it.
type GraphFilter struct{ ID, Hash string }

// Filter narrows a claim (feature X4). The zero Filter admits every run. Rows
// outside it are not touched, not even their counters.
type Filter struct {
	// Graphs, when not empty, admits only runs of these graphs.
	Graphs []GraphFilter
	// Runs, when not empty, admits only these run ids.
	Runs []string
}

// IsZero reports whether f admits every run.
func (f Filter) IsZero() bool { return len(f.Graphs) == 0 && len(f.Runs) == 0 }

// Policy says what one ClaimDue may take.
type Policy struct {
	// Now is the instant to judge by; zero means the backend's own clock.
	Now time.Time
	// TTL is the age beyond which (strictly) a claim counts as expired; >= 0.
	TTL time.Duration
	// Limit bounds the outcomes of one call; >= 1.
	Limit int
	// MaxAttempts is how many launches in a row may happen without a commit; >= 1.
	MaxAttempts int
	// Prefer is served first when Limit is 1; ignored otherwise.
	Prefer Class
	// Fairness defaults to OldestFirst.
	Fairness Fairness
	// Filter needs feature X4 when not zero.
	Filter Filter
	// OwnerCap, when > 0, bounds the claims one owner holds after the call,
	// expired ones included (feature X10).
	OwnerCap int
}

// Validate answers *ArgumentError for the first argument out of range.
func (p Policy) Validate() error {
	switch {
	case p.TTL < 0:
		return &ArgumentError{"ttl", "must not be negative"}
	case p.Limit < 1:
		return &ArgumentError{"limit", "must be at least 1"}
	case p.MaxAttempts < 1:
		return &ArgumentError{"max attempts", "must be at least 1"}
	case p.Prefer > Expired:
		return &ArgumentError{"preferred class", "must be none, ready or expired"}
	case p.Fairness > Interleave:
		return &ArgumentError{"fairness", "must be OldestFirst or Interleave"}
	case p.OwnerCap < 0:
		return &ArgumentError{"owner cap", "must not be negative"}
	}
	for i, g := range p.Filter.Graphs {
		if err := CheckID("filter graph "+strconv.Itoa(i)+" id", g.ID); err != nil {
			return err
		}
		if g.Hash == "" {
			continue
		}
		if err := CheckID("filter graph "+strconv.Itoa(i)+" hash", g.Hash); err != nil {
			return err
		}
	}
	for i, id := range p.Filter.Runs {
		if err := CheckID("filter run "+strconv.Itoa(i), id); err != nil {
			return err
		}
	}
	return nil
}

// Normal is p with Now as an Instant.
func (p Policy) Normal() Policy { p.Now = Instant(p.Now); return p }

// ReleasePolicy says how a claim is given back.
type ReleasePolicy struct {
	// Now zero means the backend's clock.
	Now time.Time
	// After delays the wake: now + After. >= 0; zero is due at once.
	After time.Duration
	// Refund hands the attempt back, for what is no fault of the run: execution never began, an orderly
	// shutdown, a claim that could not be refreshed in time.
	Refund bool
}

// Validate answers *ArgumentError.
func (p ReleasePolicy) Validate() error {
	if p.After < 0 {
		return &ArgumentError{"release delay", "must not be negative"}
	}
	return nil
}

// Backoff is the exponential schedule of never-poison abandons, in whole
// microseconds. A usable Backoff has 1 microsecond <= Base <= Cap.
type Backoff struct{ Base, Cap time.Duration }

// maxBackoffExponent keeps the shift within what a duration can hold.
const maxBackoffExponent = 30

// Delay is min(Base * 2^min(abandons, 30), Cap), saturating.
func (b Backoff) Delay(abandons int) time.Duration {
	base, limit := b.Base.Truncate(time.Microsecond), b.Cap.Truncate(time.Microsecond)
	exponent := min(max(abandons, 0), maxBackoffExponent)
	if base > limit>>exponent {
		return limit
	}
	return base << exponent
}

func (b Backoff) validate() error {
	switch {
	case b.Base < time.Microsecond:
		return &ArgumentError{"backoff base", "must be at least 1 microsecond"}
	case b.Cap < b.Base:
		return &ArgumentError{"backoff cap", "must not be less than the base"}
	}
	return nil
}

// AbandonPolicy says what happens to a run handed back before execution began.
type AbandonPolicy struct {
	// Now zero means the backend's clock.
	Now time.Time
	// ExpectedSeq is the lease's checkpoint sequence; it must match the stored one.
	ExpectedSeq int64
	// MaxAbandons is how many abandons in a row reschedule before one poisons; >= 1.
	MaxAbandons int
	// RetryAt is the next wake; must not precede Now. Zero: RetryAfter is used.
	RetryAt time.Time
	// RetryAfter is the delay from now; >= 0.
	RetryAfter time.Duration
	// NeverPoison always reschedules; it shares the counter.
	NeverPoison bool
	// Backoff, when not zero, sets the wake of a NeverPoison abandon; RetryAt is
	// then ignored, though still validated.
	Backoff Backoff
}

// Validate answers *ArgumentError. RetryAt is compared with Now when both are set,
// so a backend that uses its own clock validates again with that clock's Now.
func (p AbandonPolicy) Validate() error {
	switch {
	case p.MaxAbandons < 1:
		return &ArgumentError{"max abandons", "must be at least 1"}
	case p.RetryAfter < 0:
		return &ArgumentError{"retry-after", "must not be negative"}
	case !p.RetryAt.IsZero() && !p.Now.IsZero() && Instant(p.RetryAt).Before(Instant(p.Now)):
		return &ArgumentError{"retry-at", "must not precede now"}
	case p.Backoff != (Backoff{}):
		return p.Backoff.validate()
	}
	return nil
}

// wake is when a run is due again after its next abandon; abandons counts those before.
func (p AbandonPolicy) wake(abandons int) time.Time {
	switch {
	case p.NeverPoison && p.Backoff != (Backoff{}):
		return p.Now.Add(p.Backoff.Delay(abandons))
	case !p.RetryAt.IsZero():
		return p.RetryAt
	}
	return p.Now.Add(p.RetryAfter)
}

// Disposition is what an abandon did. All three mean: stop without committing.
type Disposition uint8

const (
	// Stale: the token or the sequence no longer match; nothing changed.
	Stale Disposition = iota
	// Rescheduled: handed back, due again at the wake.
	Rescheduled
	// Poisoned: parked until an operator recovers it.
	Poisoned
)

// String names the disposition.
func (d Disposition) String() string {
	switch d {
	case Stale:
		return "stale"
	case Rescheduled:
		return "rescheduled"
	case Poisoned:
		return "poisoned"
	}
	return "unknown"
}
