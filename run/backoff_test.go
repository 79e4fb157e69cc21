package run

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/graph"
)

func policy(initial time.Duration, factor int64, limit time.Duration) graph.Backoff {
	return graph.Backoff{Initial: graph.Duration(initial), Factor: graph.Thousandths(factor), Cap: graph.Duration(limit)}
}

// Known values, so that no later build computes others for runs in flight.
func TestBackoffStaysWhatItIs(t *testing.T) {
	for _, c := range []struct {
		policy  graph.Backoff
		attempt int
		want    int64
	}{
		{policy(time.Second, 2000, time.Hour), 1, 906_665},
		{policy(time.Second, 2000, time.Hour), 2, 1_616_925},
		{policy(time.Second, 1500, time.Hour), 3, 1_689_482},
		{policy(time.Second, 2000, 3*time.Second), 9, 2_693_525},
		{policy(time.Microsecond, 1000, time.Hour), 5, 1},
		{policy(time.Hour, 1000000, math.MaxInt64), 60, 8_779_565_634_610_481},
	} {
		id := attemptID("r:1:a", c.attempt)
		if got := backoff(c.policy, c.attempt, id); got != c.want {
			t.Errorf("attempt %d of %+v: %d", c.attempt, c.policy, got)
		}
	}
}

func TestBackoffOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policy(
			time.Duration(rapid.Int64Range(1, int64(10*time.Hour)).Draw(t, "initial")).Truncate(time.Microsecond)+time.Microsecond,
			rapid.Int64Range(1000, 1<<40).Draw(t, "factor"),
			time.Duration(rapid.Int64Range(int64(10*time.Hour)+2000, math.MaxInt64).Draw(t, "cap")),
		)
		attempt := rapid.IntRange(1, 80).Draw(t, "attempt")
		limit := big.NewInt(time.Duration(p.Cap).Microseconds())
		want := big.NewInt(time.Duration(p.Initial).Microseconds())
		for n := 1; n < attempt && want.Cmp(limit) < 0; n++ {
			want.Mul(want, big.NewInt(int64(p.Factor)))
			want.Quo(want, big.NewInt(1000))
		}
		if want.Cmp(limit) > 0 {
			want = limit
		}
		id := attemptID("r:1:a", attempt)
		got := backoff(p, attempt, id)
		if whole := got + jitter(want.Int64(), id); whole != want.Int64() {
			t.Fatalf("%d before the jitter, want %d", whole, want)
		}
		if got < want.Int64()-want.Int64()/4 || got > want.Int64() {
			t.Fatalf("%d is outside the last quarter of %d", got, want)
		}
	})
}

// A factor that no longer moves the delay must not keep the loop busy.
func TestBackoffEndsForAnyAttempt(t *testing.T) {
	id := attemptID("r:1:a", math.MaxInt)
	for _, p := range []graph.Backoff{policy(time.Microsecond, 1001, time.Hour), policy(time.Second, 1000, time.Hour)} {
		if got := backoff(p, math.MaxInt, id); got < 1 {
			t.Errorf("%+v: %d", p, got)
		}
	}
}

func TestInstantsSaturate(t *testing.T) {
	for _, c := range []struct {
		in, want time.Time
	}{
		{time.Time{}, time.Time{}},
		{time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{}},
		{time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC), latest},
		{time.Unix(1<<60, 0), latest},
		{latest.Add(999), latest},
		{time.Date(2026, 1, 1, 1, 0, 0, 1999, time.FixedZone("x", 3600)), time.Date(2026, 1, 1, 0, 0, 0, 1000, time.UTC)},
	} {
		if got := instant(c.in); got != c.want {
			t.Errorf("%s: %s", c.in, got)
		}
	}
	if got := after(at(0), math.MaxInt64); got != latest {
		t.Errorf("%s", got)
	}
	if got := after(at(0), 1_000_000); got != at(1) {
		t.Errorf("%s", got)
	}
	if got := after(latest, 1); got != latest {
		t.Errorf("%s", got)
	}
}
