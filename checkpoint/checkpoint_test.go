package checkpoint_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestTypesAreListedAndValid(t *testing.T) {
	types := checkpoint.Types()
	if len(types) != 10 || types[0] != checkpoint.RunInitialized || types[9] != checkpoint.RunCancelled {
		t.Errorf("Types() = %v", types)
	}
	seen := map[checkpoint.Type]bool{}
	for _, typ := range types {
		if !typ.Valid() || seen[typ] {
			t.Errorf("%q is valid: %v, listed before: %v", typ, typ.Valid(), seen[typ])
		}
		seen[typ] = true
	}
	for _, typ := range []checkpoint.Type{"", "Run_Initialized", "run_initialized ", "step"} {
		if typ.Valid() {
			t.Errorf("%q is valid", typ)
		}
	}
	types[0] = "changed"
	if checkpoint.Types()[0] != checkpoint.RunInitialized {
		t.Error("a caller can change the list")
	}
}

func TestFenceMatchesOnlyBothHalves(t *testing.T) {
	for _, c := range []struct {
		name              string
		stored, presented checkpoint.Fence
		want              *checkpoint.FenceError
	}{
		{"both", checkpoint.Fence{Token: "a", Seq: 4}, checkpoint.Fence{Token: "a", Seq: 4}, nil},
		{"an older sequence", checkpoint.Fence{Token: "a", Seq: 5}, checkpoint.Fence{Token: "a", Seq: 4}, &checkpoint.FenceError{Stored: 5, Presented: 4, TokenMatched: true}},
		{"a later sequence", checkpoint.Fence{Token: "a", Seq: 4}, checkpoint.Fence{Token: "a", Seq: 5}, &checkpoint.FenceError{Stored: 4, Presented: 5, TokenMatched: true}},
		{"another token", checkpoint.Fence{Token: "b", Seq: 4}, checkpoint.Fence{Token: "a", Seq: 4}, &checkpoint.FenceError{Stored: 4, Presented: 4}},
		{"neither", checkpoint.Fence{Token: "b", Seq: 5}, checkpoint.Fence{Token: "a", Seq: 4}, &checkpoint.FenceError{Stored: 5, Presented: 4}},
		{"no claim", checkpoint.Fence{Seq: 4}, checkpoint.Fence{Token: "a", Seq: 4}, &checkpoint.FenceError{Stored: 4, Presented: 4}},
		{"no claim and no token", checkpoint.Fence{Seq: 4}, checkpoint.Fence{Seq: 4}, &checkpoint.FenceError{Stored: 4, Presented: 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.stored.Check(c.presented)
			if c.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var got *checkpoint.FenceError
			if !errors.As(err, &got) || !errors.Is(err, checkpoint.ErrStaleFence) || *got != *c.want {
				t.Errorf("got %#v, want %#v", err, c.want)
			}
		})
	}
}

func TestAFenceErrorSaysWhatToDoAndNoToken(t *testing.T) {
	err := checkpoint.Fence{Token: "s3cr3t", Seq: 5}.Check(checkpoint.Fence{Token: "pr3s3nted", Seq: 4})
	for _, part := range []string{"belay: stale fence", "the claim is lost", "5", "4", "stop"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "s3") {
		t.Errorf("%q shows a token", err)
	}
	held := checkpoint.Fence{Token: "a", Seq: 5}.Check(checkpoint.Fence{Token: "a", Seq: 4})
	if !strings.Contains(held.Error(), "the claim is held") {
		t.Errorf("%q does not say that the claim is held", held)
	}
}

func TestScheduleKindsAndInstants(t *testing.T) {
	names := map[checkpoint.Kind]string{
		checkpoint.Retain: "retain", checkpoint.ReleaseNow: "release-now", checkpoint.ReleaseAt: "release-at",
		checkpoint.ReleaseExternal: "release-external", checkpoint.ReleaseTerminal: "release-terminal",
	}
	for kind := checkpoint.Kind(0); kind < 8; kind++ {
		name, known := names[kind]
		if !known {
			name = "unknown"
		}
		if kind.String() != name {
			t.Errorf("kind %d is called %q, want %q", kind, kind, name)
		}
		if got, want := (checkpoint.Schedule{Kind: kind}).Valid(), known && kind != checkpoint.ReleaseAt; got != want {
			t.Errorf("%v without an instant is valid: %v", kind, got)
		}
		if got, want := (checkpoint.Schedule{Kind: kind, At: t0}).Valid(), kind == checkpoint.ReleaseAt; got != want {
			t.Errorf("%v with an instant is valid: %v", kind, got)
		}
	}
}

func TestScheduleDecidesTheClaimAfterACommit(t *testing.T) {
	held := claim.State{Token: "a", ClaimedAt: t0, Attempts: 2, Abandons: 3}
	now := t0.Add(time.Second + 1)
	for _, c := range []struct {
		name     string
		schedule checkpoint.Schedule
		state    claim.State
		now      time.Time
		want     claim.State
	}{
		{"retain moves claimed-at forward", checkpoint.Schedule{Kind: checkpoint.Retain}, held, now, claim.State{Token: "a", ClaimedAt: t0.Add(time.Second)}},
		{"retain never moves it back", checkpoint.Schedule{Kind: checkpoint.Retain}, held, t0.Add(-time.Hour), claim.State{Token: "a", ClaimedAt: t0}},
		{"release-now is due now", checkpoint.Schedule{Kind: checkpoint.ReleaseNow}, held, now, claim.State{Wake: t0.Add(time.Second)}},
		{"release-at is due then", checkpoint.Schedule{Kind: checkpoint.ReleaseAt, At: t0.Add(time.Hour + 1)}, held, now, claim.State{Wake: t0.Add(time.Hour)}},
		{"release-at may be past", checkpoint.Schedule{Kind: checkpoint.ReleaseAt, At: t0.Add(-time.Hour)}, held, now, claim.State{Wake: t0.Add(-time.Hour)}},
		{"external leaves neither", checkpoint.Schedule{Kind: checkpoint.ReleaseExternal}, held, now, claim.State{}},
		{"terminal leaves neither", checkpoint.Schedule{Kind: checkpoint.ReleaseTerminal}, held, now, claim.State{}},
		{
			"a release clears poison",
			checkpoint.Schedule{Kind: checkpoint.ReleaseNow},
			claim.State{Attempts: 3, Poison: claim.Poison{At: t0, Reason: claim.MaxAttemptsExceeded}},
			t0,
			claim.State{Wake: t0},
		},
		{"an invalid schedule changes nothing", checkpoint.Schedule{}, held, now, held},
		{"release-at without an instant changes nothing", checkpoint.Schedule{Kind: checkpoint.ReleaseAt}, held, now, held},
		{"retain without a claim changes nothing", checkpoint.Schedule{Kind: checkpoint.Retain}, claim.State{Wake: t0}, now, claim.State{Wake: t0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.schedule.Apply(c.state, c.now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestACommitLeavesALegalShape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		instant := func(label string) time.Time {
			return t0.Add(time.Duration(rapid.Int64Range(-1e10, 1e10).Draw(t, label)))
		}
		before := claim.State{
			Token: "a", ClaimedAt: claim.Instant(instant("claimed")),
			Attempts: rapid.IntRange(0, 3).Draw(t, "attempts"), Abandons: rapid.IntRange(0, 3).Draw(t, "abandons"),
		}
		schedule := checkpoint.Schedule{Kind: checkpoint.Kind(rapid.IntRange(1, 5).Draw(t, "kind"))}
		if schedule.Kind == checkpoint.ReleaseAt {
			schedule.At = instant("at")
		}
		after := schedule.Apply(before, instant("now"))
		running := schedule.Kind <= checkpoint.ReleaseAt
		if err := after.Valid(running); err != nil {
			t.Fatalf("%v of %+v: %v", schedule.Kind, before, err)
		}
		if after.Attempts != 0 || after.Abandons != 0 {
			t.Fatalf("%v keeps counters: %+v", schedule.Kind, after)
		}
		if after.Token != "" && after.ClaimedAt.Before(before.ClaimedAt) {
			t.Fatalf("claimed-at went back from %v to %v", before.ClaimedAt, after.ClaimedAt)
		}
	})
}
