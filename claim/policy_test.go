package claim_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/claim"
)

// wantArgument checks that err names the argument, or is nil for "".
func wantArgument(t *testing.T, what string, err error, argument string) {
	t.Helper()
	var refused *claim.ArgumentError
	switch {
	case argument == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case argument != "" && (!errors.As(err, &refused) || refused.Argument != argument):
		t.Errorf("%s: got %v, want it to name %q", what, err, argument)
	case argument != "" && !strings.HasPrefix(err.Error(), "belay: invalid argument: "+argument+" must "):
		t.Errorf("%s: message %q", what, err)
	}
}

func TestClaimPolicyArguments(t *testing.T) {
	good := claim.Policy{Limit: 1, MaxAttempts: 1}
	long := strings.Repeat("x", claim.MaxID+1)
	for _, c := range []struct {
		name, argument string
		change         func(*claim.Policy)
	}{
		{"the smallest", "", func(*claim.Policy) {}},
		{"a ttl of zero", "", func(p *claim.Policy) { p.TTL = 0 }},
		{"the longest ttl", "", func(p *claim.Policy) { p.TTL = math.MaxInt64 }},
		{"a negative ttl", "ttl", func(p *claim.Policy) { p.TTL = -1 }},
		{"a limit of zero", "limit", func(p *claim.Policy) { p.Limit = 0 }},
		{"no attempts", "max attempts", func(p *claim.Policy) { p.MaxAttempts = 0 }},
		{"a preference", "", func(p *claim.Policy) { p.Prefer = claim.Expired }},
		{"an unknown class", "preferred class", func(p *claim.Policy) { p.Prefer = claim.Expired + 1 }},
		{"an unknown fairness", "fairness", func(p *claim.Policy) { p.Fairness = claim.Interleave + 1 }},
		{"a negative cap", "owner cap", func(p *claim.Policy) { p.OwnerCap = -1 }},
		{"a filter", "", func(p *claim.Policy) {
			p.Filter = claim.Filter{Graphs: []claim.GraphFilter{{ID: "g"}, {ID: "g", Hash: "h"}}, Runs: []string{"r"}}
		}},
		{"an empty graph id", "filter graph 1 id", func(p *claim.Policy) { p.Filter.Graphs = []claim.GraphFilter{{ID: "g"}, {Hash: "h"}} }},
		{"an oversized graph hash", "filter graph 0 hash", func(p *claim.Policy) { p.Filter.Graphs = []claim.GraphFilter{{ID: "g", Hash: long}} }},
		{"an empty run id", "filter run 0", func(p *claim.Policy) { p.Filter.Runs = []string{""} }},
	} {
		p := good
		c.change(&p)
		wantArgument(t, c.name, p.Validate(), c.argument)
	}
	if !(claim.Filter{}).IsZero() || (claim.Filter{Runs: []string{"r"}}).IsZero() || (claim.Filter{Graphs: []claim.GraphFilter{{}}}).IsZero() {
		t.Error("only the empty filter admits every run")
	}
	if p := (claim.Policy{Now: t0.Add(1_999).In(time.FixedZone("east", 3600))}).Normal(); p.Now != at(time.Microsecond) {
		t.Errorf("Normal keeps %v", p.Now)
	}
}

func TestReleasePolicyArguments(t *testing.T) {
	wantArgument(t, "at once", claim.ReleasePolicy{}.Validate(), "")
	wantArgument(t, "later", claim.ReleasePolicy{After: math.MaxInt64}.Validate(), "")
	wantArgument(t, "earlier", claim.ReleasePolicy{After: -1}.Validate(), "release delay")
}

func TestAbandonPolicyArguments(t *testing.T) {
	for _, c := range []struct {
		name, argument string
		policy         claim.AbandonPolicy
	}{
		{"the smallest", "", claim.AbandonPolicy{MaxAbandons: 1}},
		{"no abandons", "max abandons", claim.AbandonPolicy{}},
		{"no abandons, though never poisoned", "max abandons", claim.AbandonPolicy{NeverPoison: true}},
		{"a negative delay", "retry-after", claim.AbandonPolicy{MaxAbandons: 1, RetryAfter: -1}},
		{"retry-at now", "", claim.AbandonPolicy{MaxAbandons: 1, Now: t0, RetryAt: t0}},
		{"retry-at before now", "retry-at", claim.AbandonPolicy{MaxAbandons: 1, Now: t0, RetryAt: at(-time.Microsecond)}},
		{"retry-at before now in the same microsecond", "", claim.AbandonPolicy{MaxAbandons: 1, Now: t0.Add(999), RetryAt: t0}},
		{"retry-at before now though the backoff decides", "retry-at", claim.AbandonPolicy{MaxAbandons: 1, NeverPoison: true, Backoff: claim.Backoff{Base: 1000, Cap: 1000}, Now: t0, RetryAt: at(-time.Second)}},
		{"retry-at by the backend's clock", "", claim.AbandonPolicy{MaxAbandons: 1, RetryAt: at(-time.Hour)}},
		{"a backoff", "", claim.AbandonPolicy{MaxAbandons: 1, Backoff: claim.Backoff{Base: time.Microsecond, Cap: time.Microsecond}}},
		{"a base of zero", "backoff base", claim.AbandonPolicy{MaxAbandons: 1, Backoff: claim.Backoff{Cap: time.Second}}},
		{"a negative base", "backoff base", claim.AbandonPolicy{MaxAbandons: 1, Backoff: claim.Backoff{Base: -time.Second, Cap: time.Second}}},
		{"a base that no store can hold", "backoff base", claim.AbandonPolicy{MaxAbandons: 1, Backoff: claim.Backoff{Base: 999, Cap: time.Second}}},
		{"a cap below the base", "backoff cap", claim.AbandonPolicy{MaxAbandons: 1, Backoff: claim.Backoff{Base: time.Second, Cap: time.Second - 1}}},
	} {
		wantArgument(t, c.name, c.policy.Validate(), c.argument)
	}
}

// instants draws times around t0, with zones and fractions that must not survive.
func instants(t *rapid.T, label string) time.Time {
	d := rapid.Int64Range(-5_000_000, 5_000_000).Draw(t, label)
	return t0.Add(time.Duration(d)).In(time.FixedZone("east", 3600))
}

func TestAnySequenceOfOperationsKeepsTheShape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := claim.State{Wake: claim.Instant(instants(t, "first wake"))}
		tokens := []claim.Token{"never issued"}
		issued := 0
		token := func() claim.Token { return rapid.SampledFrom(tokens).Draw(t, "token") }
		unchanged := func(what string, next claim.State) {
			if next != s {
				t.Fatalf("%s changed %+v to %+v", what, s, next)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				now := instants(t, "now")
				maxAttempts := rapid.IntRange(1, 3).Draw(t, "max attempts")
				class, since := s.Class(now, time.Duration(rapid.Int64Range(0, 2_000_000).Draw(t, "ttl")))
				if class == claim.NoClass {
					t.Skip("not due")
				}
				if since.After(claim.Instant(now)) {
					t.Fatalf("eligible since %v, after now %v", since, now)
				}
				issued++
				fresh := claim.Token(strings.Repeat("t", issued))
				next, poisoned := s.Acquire(now, fresh, maxAttempts)
				if poisoned != (s.Attempts >= maxAttempts) || next.Attempts > max(s.Attempts, maxAttempts) || next.Abandons != s.Abandons {
					t.Fatalf("%+v acquired to %+v, poisoned %v", s, next, poisoned)
				}
				s, tokens = next, append(tokens, fresh)
			},
			"refresh": func(t *rapid.T) {
				presented, now := token(), instants(t, "now")
				next, err := s.Refresh(presented, now)
				if (err == nil) != (s.Token == presented) || next.ClaimedAt.Before(s.ClaimedAt) {
					t.Fatalf("%+v refreshed to %+v, %v", s, next, err)
				}
				next.ClaimedAt, s.ClaimedAt = s.ClaimedAt, next.ClaimedAt
				unchanged("refresh, claimed-at aside,", claim.State{Wake: next.Wake, Token: next.Token, ClaimedAt: s.ClaimedAt, Attempts: next.Attempts, Abandons: next.Abandons, Poison: next.Poison})
			},
			"release": func(t *rapid.T) {
				presented := token()
				p := claim.ReleasePolicy{Now: instants(t, "now"), After: time.Duration(rapid.Int64Range(0, 1_000_000).Draw(t, "after")), Refund: rapid.Bool().Draw(t, "refund")}
				next, changed := s.Release(presented, p)
				if changed != (s.Token == presented) {
					t.Fatalf("released with changed %v", changed)
				}
				if !changed {
					unchanged("a stale release", next)
				}
				s = next
			},
			"abandon": func(t *rapid.T) {
				presented := token()
				p := claim.AbandonPolicy{
					Now: instants(t, "now"), ExpectedSeq: rapid.Int64Range(1, 2).Draw(t, "expected"),
					MaxAbandons: rapid.IntRange(1, 2).Draw(t, "max abandons"), NeverPoison: rapid.Bool().Draw(t, "never poison"),
				}
				if rapid.Bool().Draw(t, "with backoff") {
					p.Backoff = claim.Backoff{Base: time.Microsecond, Cap: time.Second}
				}
				next, did := s.Abandon(presented, 1, p)
				switch stale := s.Token != presented || p.ExpectedSeq != 1; {
				case stale != (did == claim.Stale):
					t.Fatalf("%v for a claim that is stale: %v", did, stale)
				case stale:
					unchanged("a stale abandon", next)
				case (did == claim.Poisoned) != (!p.NeverPoison && s.Abandons >= p.MaxAbandons):
					t.Fatalf("%v at %d abandons of %d, never poison %v", did, s.Abandons, p.MaxAbandons, p.NeverPoison)
				case next.Attempts != max(0, s.Attempts-1):
					t.Fatalf("attempts %d became %d", s.Attempts, next.Attempts)
				}
				s = next
			},
			"recover": func(t *rapid.T) {
				next, changed := s.Recover(instants(t, "now"))
				if !changed {
					unchanged("recovery of a healthy run", next)
				}
				s = next
			},
			"retain": func(t *rapid.T) {
				next := s.Retain(instants(t, "now"))
				if next.Token != s.Token || next.ClaimedAt.Before(s.ClaimedAt) {
					t.Fatalf("%+v retained to %+v", s, next)
				}
				s = next
			},
			"": func(t *rapid.T) {
				if err := s.Valid(true); err != nil {
					t.Fatalf("%+v: %v", s, err)
				}
				for _, stored := range []time.Time{s.Wake, s.ClaimedAt, s.Poison.At} {
					if stored != claim.Instant(stored) {
						t.Fatalf("%v is stored, which is no instant", stored)
					}
				}
			},
		})
	})
}
