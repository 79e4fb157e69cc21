package claim_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay/claim"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

func scheduled(wake time.Time) claim.State { return claim.State{Wake: wake} }

func claimed(token claim.Token, since time.Time) claim.State {
	return claim.State{Token: token, ClaimedAt: since, Attempts: 1}
}

func poisoned(reason string) claim.State {
	return claim.State{Poison: claim.Poison{At: t0, Reason: reason}, Attempts: 2, Abandons: 1}
}

func TestInstantIsUTCInWholeMicroseconds(t *testing.T) {
	zone := time.FixedZone("east", 3600)
	got := claim.Instant(time.Date(2026, 1, 2, 4, 4, 5, 1_999, zone))
	if want := at(time.Microsecond); got != want || got.Location() != time.UTC {
		t.Errorf("got %v, want %v", got, want)
	}
	if !claim.Instant(time.Time{}).IsZero() {
		t.Error("the zero time does not stay zero")
	}
	if now := time.Now(); claim.Instant(now) != claim.Instant(now.Round(0)) {
		t.Error("the monotonic reading stays")
	}
}

func TestClassOfARun(t *testing.T) {
	const ttl = time.Minute
	for _, c := range []struct {
		name  string
		state claim.State
		now   time.Time
		ttl   time.Duration
		class claim.Class
		at    time.Time
	}{
		{"a wake ahead is not due", scheduled(at(time.Microsecond)), t0, ttl, claim.NoClass, time.Time{}},
		{"a wake that has come is ready", scheduled(t0), t0, ttl, claim.Ready, t0},
		{"a wake in the past is ready since then", scheduled(at(-time.Hour)), t0, ttl, claim.Ready, at(-time.Hour)},
		{"a claim younger than the ttl is held", claimed("a", at(time.Microsecond-ttl)), t0, ttl, claim.NoClass, time.Time{}},
		{"a claim exactly as old as the ttl is held", claimed("a", at(-ttl)), t0, ttl, claim.NoClass, time.Time{}},
		{"a claim strictly older is expired since it was claimed", claimed("a", at(-ttl-time.Microsecond)), t0, ttl, claim.Expired, at(-ttl - time.Microsecond)},
		{"less than a microsecond older is not older", claimed("a", at(-ttl)), t0.Add(999), ttl, claim.NoClass, time.Time{}},
		{"with a ttl of zero a claim of now is held", claimed("a", t0), t0, 0, claim.NoClass, time.Time{}},
		{"with a ttl of zero a claim of before is expired", claimed("a", at(-time.Microsecond)), t0, 0, claim.Expired, at(-time.Microsecond)},
		{"a claim in the future is held", claimed("a", at(time.Hour)), t0, ttl, claim.NoClass, time.Time{}},
		{"the longest ttl never expires", claimed("a", at(-100*365*24*time.Hour)), t0, math.MaxInt64, claim.NoClass, time.Time{}},
		{"poison is never due", poisoned(claim.MaxAttemptsExceeded), at(time.Hour), ttl, claim.NoClass, time.Time{}},
		{"an idle run is never due", claim.State{}, at(time.Hour), ttl, claim.NoClass, time.Time{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			class, since := c.state.Class(c.now, c.ttl)
			if class != c.class || since != c.at {
				t.Errorf("got %v since %v, want %v since %v", class, since, c.class, c.at)
			}
		})
	}
}

func TestShapesOfARun(t *testing.T) {
	whole := claim.Poison{At: t0, Reason: claim.MaxAbandonsExceeded}
	for _, c := range []struct {
		name    string
		state   claim.State
		running bool
		valid   bool
	}{
		{"scheduled", scheduled(t0), true, true},
		{"scheduled with counters", claim.State{Wake: t0, Attempts: 3, Abandons: 2}, true, true},
		{"claimed", claimed("a", t0), true, true},
		{"poisoned", poisoned(claim.MaxAttemptsExceeded), true, true},
		{"idle", claim.State{}, false, true},
		{"running without wake, claim and poison", claim.State{}, true, false},
		{"a wake and a claim", claim.State{Wake: t0, Token: "a", ClaimedAt: t0}, true, false},
		{"a wake and a poison", claim.State{Wake: t0, Poison: whole}, true, false},
		{"a claim and a poison", claim.State{Token: "a", ClaimedAt: t0, Poison: whole}, true, false},
		{"a token alone", claim.State{Token: "a"}, true, false},
		{"a claimed-at alone", claim.State{ClaimedAt: t0}, true, false},
		{"a claimed-at beside a wake", claim.State{Wake: t0, ClaimedAt: t0}, true, false},
		{"a poison without reason", claim.State{Poison: claim.Poison{At: t0}}, true, false},
		{"a poison without instant", claim.State{Poison: claim.Poison{Reason: "x"}}, true, false},
		{"negative attempts", claim.State{Wake: t0, Attempts: -1}, true, false},
		{"negative abandons", claim.State{Wake: t0, Abandons: -1}, true, false},
		{"idle with a wake", scheduled(t0), false, false},
		{"idle with a claim", claimed("a", t0), false, false},
		{"idle with a poison", poisoned(claim.MaxAttemptsExceeded), false, false},
		{"idle with counters", claim.State{Attempts: 1}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.state.Valid(c.running)
			if (err == nil) != c.valid {
				t.Errorf("got %v", err)
			}
			if err != nil && !errors.Is(err, claim.ErrInvalidState) {
				t.Errorf("%v is not ErrInvalidState", err)
			}
		})
	}
}

func TestAcquireClaimsOrPoisons(t *testing.T) {
	now := t0.Add(1_999)
	for _, c := range []struct {
		name     string
		state    claim.State
		max      int
		want     claim.State
		poisoned bool
	}{
		{
			"the first launch",
			claim.State{Wake: at(-time.Hour), Abandons: 2},
			3,
			claim.State{Token: "new", ClaimedAt: at(time.Microsecond), Attempts: 1, Abandons: 2},
			false,
		},
		{
			"the last launch",
			claim.State{Token: "old", ClaimedAt: at(-time.Hour), Attempts: 2},
			3,
			claim.State{Token: "new", ClaimedAt: at(time.Microsecond), Attempts: 3},
			false,
		},
		{
			"one launch too many",
			claim.State{Token: "old", ClaimedAt: at(-time.Hour), Attempts: 3, Abandons: 1},
			3,
			claim.State{Attempts: 3, Abandons: 1, Poison: claim.Poison{At: at(time.Microsecond), Reason: claim.MaxAttemptsExceeded}},
			true,
		},
		{
			"a lowered maximum",
			claim.State{Wake: t0, Attempts: 9},
			3,
			claim.State{Attempts: 9, Poison: claim.Poison{At: at(time.Microsecond), Reason: claim.MaxAttemptsExceeded}},
			true,
		},
		{
			"a stolen claim may be younger than the old one",
			claim.State{Token: "old", ClaimedAt: at(time.Hour)},
			1,
			claim.State{Token: "new", ClaimedAt: at(time.Microsecond), Attempts: 1},
			false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, p := c.state.Acquire(now, "new", c.max)
			if diff := cmp.Diff(c.want, got); diff != "" || p != c.poisoned {
				t.Errorf("poisoned %v, %s", p, diff)
			}
		})
	}
}

func TestRefreshMovesClaimedAtForwardOnly(t *testing.T) {
	s := claim.State{Token: "a", ClaimedAt: t0, Attempts: 2, Abandons: 1}
	for _, c := range []struct {
		name string
		now  time.Time
		want time.Time
	}{
		{"later", at(time.Second), at(time.Second)},
		{"the same", t0, t0},
		{"earlier, from a clock set back", at(-time.Hour), t0},
		{"less than a microsecond later", t0.Add(999), t0},
		{"long after the ttl", at(1000 * time.Hour), at(1000 * time.Hour)},
	} {
		got, err := s.Refresh("a", c.now)
		want := s
		want.ClaimedAt = c.want
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", c.name, err, diff)
		}
	}
}

func TestOnlyTheCurrentTokenActs(t *testing.T) {
	states := map[string]claim.State{
		"claimed by another": {Token: "other", ClaimedAt: t0, Attempts: 2, Abandons: 1},
		"scheduled":          {Wake: t0, Attempts: 1},
		"poisoned":           poisoned(claim.MaxAbandonsExceeded),
		"idle":               {},
	}
	for name, s := range states {
		for _, token := range []claim.Token{"stale", ""} {
			if got, err := s.Refresh(token, at(time.Hour)); !errors.Is(err, claim.ErrClaimLost) || got != s {
				t.Errorf("%s: refresh with %q: %v, %v", name, string(token), got, err)
			}
			if got, changed := s.Release(token, claim.ReleasePolicy{Now: t0, Refund: true}); changed || got != s {
				t.Errorf("%s: release with %q: %v", name, string(token), got)
			}
			p := claim.AbandonPolicy{Now: t0, MaxAbandons: 1, ExpectedSeq: 4}
			if got, d := s.Abandon(token, 4, p); d != claim.Stale || got != s {
				t.Errorf("%s: abandon with %q: %v, %v", name, string(token), got, d)
			}
		}
	}
}

func TestReleaseKeepsTheAttemptUnlessRefunded(t *testing.T) {
	for _, c := range []struct {
		name     string
		attempts int
		policy   claim.ReleasePolicy
		want     claim.State
	}{
		{"kept", 2, claim.ReleasePolicy{Now: t0}, claim.State{Wake: t0, Attempts: 2, Abandons: 1}},
		{"refunded", 2, claim.ReleasePolicy{Now: t0, Refund: true}, claim.State{Wake: t0, Attempts: 1, Abandons: 1}},
		{"never below zero", 0, claim.ReleasePolicy{Now: t0, Refund: true}, claim.State{Wake: t0, Abandons: 1}},
		{"with a later wake", 1, claim.ReleasePolicy{Now: t0, After: time.Second + 1, Refund: true}, claim.State{Wake: at(time.Second), Abandons: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := claim.State{Token: "a", ClaimedAt: t0, Attempts: c.attempts, Abandons: 1}
			got, changed := s.Release("a", c.policy)
			if diff := cmp.Diff(c.want, got); diff != "" || !changed {
				t.Errorf("changed %v %s", changed, diff)
			}
		})
	}
}

func TestAbandonReschedulesThenPoisons(t *testing.T) {
	backoff := claim.Backoff{Base: time.Second, Cap: time.Minute}
	for _, c := range []struct {
		name               string
		attempts, abandons int
		policy             claim.AbandonPolicy
		want               claim.State
		did                claim.Disposition
	}{
		{
			"at an instant", 1, 0,
			claim.AbandonPolicy{MaxAbandons: 2, RetryAt: at(time.Second).Add(1)},
			claim.State{Wake: at(time.Second), Abandons: 1},
			claim.Rescheduled,
		},
		{
			"after a delay", 3, 1,
			claim.AbandonPolicy{MaxAbandons: 2, RetryAfter: time.Second},
			claim.State{Wake: at(time.Second), Attempts: 2, Abandons: 2},
			claim.Rescheduled,
		},
		{
			"at once", 1, 0,
			claim.AbandonPolicy{MaxAbandons: 1},
			claim.State{Wake: t0, Abandons: 1},
			claim.Rescheduled,
		},
		{
			"attempts never below zero", 0, 0,
			claim.AbandonPolicy{MaxAbandons: 1},
			claim.State{Wake: t0, Abandons: 1},
			claim.Rescheduled,
		},
		{
			"one too many poisons and leaves the abandons", 2, 2,
			claim.AbandonPolicy{MaxAbandons: 2, RetryAt: at(time.Hour)},
			claim.State{Attempts: 1, Abandons: 2, Poison: claim.Poison{At: t0, Reason: claim.MaxAbandonsExceeded}},
			claim.Poisoned,
		},
		{
			"never-poison passes the maximum", 1, 7,
			claim.AbandonPolicy{MaxAbandons: 1, NeverPoison: true, RetryAfter: time.Second},
			claim.State{Wake: at(time.Second), Abandons: 8},
			claim.Rescheduled,
		},
		{
			"its backoff counts the abandons before", 1, 3,
			claim.AbandonPolicy{MaxAbandons: 1, NeverPoison: true, Backoff: backoff, RetryAt: at(time.Hour)},
			claim.State{Wake: at(8 * time.Second), Abandons: 4},
			claim.Rescheduled,
		},
		{
			"the shared counter poisons the next ordinary one", 1, 8,
			claim.AbandonPolicy{MaxAbandons: 8, Backoff: backoff},
			claim.State{Abandons: 8, Poison: claim.Poison{At: t0, Reason: claim.MaxAbandonsExceeded}},
			claim.Poisoned,
		},
		{
			"a backoff is for never-poison alone", 1, 0,
			claim.AbandonPolicy{MaxAbandons: 1, Backoff: backoff, RetryAfter: time.Minute},
			claim.State{Wake: at(time.Minute), Abandons: 1},
			claim.Rescheduled,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.policy.Now, c.policy.ExpectedSeq = t0, 5
			s := claim.State{Token: "a", ClaimedAt: at(-time.Hour), Attempts: c.attempts, Abandons: c.abandons}
			got, did := s.Abandon("a", 5, c.policy)
			if diff := cmp.Diff(c.want, got); diff != "" || did != c.did {
				t.Errorf("%v %s", did, diff)
			}
			if again, did := s.Abandon("a", 6, c.policy); did != claim.Stale || again != s {
				t.Errorf("with another sequence: %v, %v", did, again)
			}
		})
	}
}

func TestRecoverFreesOnlyPoison(t *testing.T) {
	for _, reason := range []string{claim.MaxAttemptsExceeded, claim.MaxAbandonsExceeded} {
		got, changed := poisoned(reason).Recover(t0.Add(1_999))
		if diff := cmp.Diff(scheduled(at(time.Microsecond)), got); diff != "" || !changed {
			t.Errorf("%s: changed %v %s", reason, changed, diff)
		}
	}
	for _, s := range []claim.State{claimed("a", t0), {Wake: at(time.Hour), Attempts: 2}, {}} {
		if got, changed := s.Recover(t0); changed || got != s {
			t.Errorf("a healthy run was touched: %v became %v", s, got)
		}
	}
}

func TestRetainNeverMovesClaimedAtBack(t *testing.T) {
	s := claim.State{Token: "a", ClaimedAt: t0, Attempts: 3, Abandons: 2}
	for now, want := range map[time.Time]time.Time{at(-time.Hour): t0, t0: t0, at(time.Second).Add(1): at(time.Second)} {
		if diff := cmp.Diff(claim.State{Token: "a", ClaimedAt: want}, s.Retain(now)); diff != "" {
			t.Errorf("at %v: %s", now, diff)
		}
	}
	for _, unclaimed := range []claim.State{scheduled(t0), poisoned(claim.MaxAbandonsExceeded), {}} {
		if got := unclaimed.Retain(t0); got != unclaimed {
			t.Errorf("%v has no claim to retain, but became %v", unclaimed, got)
		}
	}
}

func TestBackoffDoublesUpToItsCap(t *testing.T) {
	for _, c := range []struct {
		name     string
		backoff  claim.Backoff
		abandons int
		want     time.Duration
	}{
		{"first", claim.Backoff{Base: time.Second, Cap: time.Hour}, 0, time.Second},
		{"second", claim.Backoff{Base: time.Second, Cap: time.Hour}, 1, 2 * time.Second},
		{"below the cap", claim.Backoff{Base: time.Second, Cap: time.Hour}, 11, 2048 * time.Second},
		{"capped", claim.Backoff{Base: time.Second, Cap: time.Hour}, 12, time.Hour},
		{"base and cap alike", claim.Backoff{Base: time.Hour, Cap: time.Hour}, 5, time.Hour},
		{"exactly the cap", claim.Backoff{Base: time.Second, Cap: 4 * time.Second}, 2, 4 * time.Second},
		{"exponent 30", claim.Backoff{Base: time.Microsecond, Cap: math.MaxInt64}, 30, time.Microsecond << 30},
		{"exponent never above 30", claim.Backoff{Base: time.Microsecond, Cap: math.MaxInt64}, 31, time.Microsecond << 30},
		{"any number of abandons", claim.Backoff{Base: time.Microsecond, Cap: math.MaxInt64}, math.MaxInt, time.Microsecond << 30},
		{"saturates", claim.Backoff{Base: time.Hour, Cap: math.MaxInt64}, 30, time.Duration(math.MaxInt64).Truncate(time.Microsecond)},
		{"saturates at the largest base", claim.Backoff{Base: math.MaxInt64, Cap: math.MaxInt64}, 1, time.Duration(math.MaxInt64).Truncate(time.Microsecond)},
		{"whole microseconds", claim.Backoff{Base: 1999, Cap: time.Second + 1}, 1, 2 * time.Microsecond},
		{"a whole cap", claim.Backoff{Base: time.Second, Cap: time.Second + 1}, 1, time.Second},
		{"no abandons below zero", claim.Backoff{Base: time.Second, Cap: time.Hour}, -1, time.Second},
		{"none", claim.Backoff{}, 3, 0},
	} {
		if got := c.backoff.Delay(c.abandons); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// H6: exact launch counts, for crashes and for errors that a release keeps.
func TestH6MaxAttemptsNIsExactlyNLaunches(t *testing.T) {
	ends := map[string]func(claim.State, claim.Token, time.Time) claim.State{
		"crash": func(s claim.State, _ claim.Token, _ time.Time) claim.State { return s },
		"release": func(s claim.State, token claim.Token, now time.Time) claim.State {
			return release(s, token, now, false)
		},
	}
	for _, mix := range [][]string{{"crash"}, {"release"}, {"crash", "release"}, {"release", "crash"}} {
		for limit := 1; limit <= 3; limit++ {
			launches, now, s := 0, t0, scheduled(t0)
			for s.Poison == (claim.Poison{}) {
				if class, _ := s.Class(now, time.Minute); class == claim.NoClass {
					t.Fatalf("%v, max %d: not due after %d launches: %v", mix, limit, launches, s)
				}
				token := claim.Token(fmt.Sprint("t", launches))
				next, poisoned := s.Acquire(now, token, limit)
				if s = next; !poisoned {
					s = ends[mix[launches%len(mix)]](s, token, now)
					launches++
				}
				now = now.Add(time.Hour)
			}
			if launches != limit || s.Attempts != limit || s.Abandons != 0 || s.Poison.Reason != claim.MaxAttemptsExceeded {
				t.Errorf("%v, max %d: %d launches, %+v", mix, limit, launches, s)
			}
		}
	}
}

func release(s claim.State, token claim.Token, now time.Time, refund bool) claim.State {
	next, _ := s.Release(token, claim.ReleasePolicy{Now: now, Refund: refund})
	return next
}

func TestH6MaxAbandonsNIsExactlyNReschedules(t *testing.T) {
	for limit := 1; limit <= 2; limit++ {
		s, rescheduled := scheduled(t0), 0
		for {
			s, _ = s.Acquire(t0, "t", 1) // one attempt suffices: each abandon hands it back
			var did claim.Disposition
			s, did = s.Abandon("t", 1, claim.AbandonPolicy{Now: t0, ExpectedSeq: 1, MaxAbandons: limit})
			if did != claim.Rescheduled {
				break
			}
			rescheduled++
		}
		want := claim.State{Abandons: limit, Poison: claim.Poison{At: t0, Reason: claim.MaxAbandonsExceeded}}
		if diff := cmp.Diff(want, s); rescheduled != limit || diff != "" {
			t.Errorf("max %d: %d reschedules %s", limit, rescheduled, diff)
		}
	}
}

func TestH6CountersNeverLeakIntoEachOther(t *testing.T) {
	s := scheduled(t0)
	for i := range 5 { // a crash uses up an attempt, an abandon only an abandon
		s, _ = s.Acquire(t0, "crashed", 100)
		s, _ = s.Acquire(t0, "abandoned", 100)
		s, _ = s.Abandon("abandoned", 1, claim.AbandonPolicy{Now: t0, ExpectedSeq: 1, MaxAbandons: 100})
		if s.Attempts != i+1 || s.Abandons != i+1 {
			t.Fatalf("round %d: %+v", i, s)
		}
	}
}

func TestH6RefundedReleasesUseNoBudget(t *testing.T) {
	s := scheduled(t0)
	for range 100_000 {
		next, poisoned := s.Acquire(t0, "t", 1)
		if poisoned {
			t.Fatal("poisoned")
		}
		s = release(next, "t", t0, true)
	}
	if s != scheduled(t0) {
		t.Errorf("got %+v", s)
	}
}

// H8: what every entry point refuses about an identifier.
func TestH8IdentifiersAreBoundedUTF8WithoutNUL(t *testing.T) {
	for id, valid := range map[string]bool{
		"":                       false,
		"a":                      true,
		" ":                      true,
		"é😀":                     true,
		strings.Repeat("a", 255): true,
		strings.Repeat("a", 256): false,
		strings.Repeat("é", 127): true,
		strings.Repeat("é", 128): false, // the bound is in bytes
		"a\xff":                  false,
		"\xed\xa0\x80":           false,
		"a\x00b":                 false,
	} {
		err := claim.CheckID("run id", id)
		var argument *claim.ArgumentError
		if (err == nil) != valid || err != nil && (!errors.As(err, &argument) || argument.Argument != "run id" || !errors.Is(err, claim.ErrInvalidArgument)) {
			t.Errorf("CheckID(%q) = %v", id, err)
		}
		if tenant := claim.Tenant(id).Validate(); (tenant == nil) != valid || err != nil && !errors.Is(tenant, claim.ErrInvalidArgument) {
			t.Errorf("Tenant(%q).Validate() = %v", id, tenant)
		}
	}
	if err := claim.CheckID("token", "secret\x00"); strings.Contains(err.Error(), "secret") {
		t.Errorf("%v repeats what may be a secret", err)
	}
}

func TestOwnersDiffer(t *testing.T) {
	owners := []claim.Owner{{}, claim.Tenantless(), claim.Tenant(""), claim.Tenant("tenantless"), claim.Tenant("a")}
	for i, a := range owners {
		for j, b := range owners {
			if (a == b) != (i == j) {
				t.Errorf("owners %d and %d: equal is %v", i, j, a == b)
			}
		}
	}
	for _, c := range []struct {
		owner claim.Owner
		valid bool
		id    string
		ok    bool
		text  string
	}{
		{claim.Owner{}, false, "", false, "no owner"},
		{claim.Tenantless(), true, "", false, "tenantless"},
		{claim.Tenant("a"), true, "a", true, "a"},
		{claim.Tenant(""), false, "", true, ""},
	} {
		id, ok := c.owner.Tenant()
		if err := c.owner.Validate(); (err == nil) != c.valid || id != c.id || ok != c.ok || c.owner.String() != c.text {
			t.Errorf("%#v: %v, %q, %v, %q", c.owner, err, id, ok, c.owner)
		}
	}
}

func TestATokenNeverPrints(t *testing.T) {
	const secret = "s3cr3t"
	lease := claim.Lease{Run: "r", Token: secret}
	state := claim.State{Token: secret, ClaimedAt: t0}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("claimed", "token", lease.Token)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("claimed", "token", lease.Token)
	fmt.Fprintf(&log, "%v %+v %#v %s %q\n", lease, lease, lease, lease.Token, lease.Token)
	fmt.Fprintf(&log, "%v %+v %#v\n", state, state, &state)
	if strings.Contains(log.String(), secret) {
		t.Errorf("printed:\n%s", log.String())
	}
}

func TestDispositionsAndClassesHaveNames(t *testing.T) {
	for name, got := range map[string]fmt.Stringer{
		"stale": claim.Stale, "rescheduled": claim.Rescheduled, "poisoned": claim.Poisoned,
		"none": claim.NoClass, "ready": claim.Ready, "expired": claim.Expired,
	} {
		if got.String() != name {
			t.Errorf("got %q, want %q", got, name)
		}
	}
	if claim.Disposition(9).String() != "unknown" || claim.Class(9).String() != "unknown" {
		t.Error("an unknown one claims a name")
	}
}
