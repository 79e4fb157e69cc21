//go:build unix

package rolling

import (
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// TestTheWatchFindsWhatMayNotBe in what a run looks like, one look after the other.
func TestTheWatchFindsWhatMayNotBe(t *testing.T) {
	now := time.Now()
	soon := now.Add(usual.backoff)
	ready := backend.Summary{Run: "r", Status: run.Running, Seq: 3, Wake: now}
	with := func(change func(*backend.Summary)) backend.Summary {
		r := ready
		change(&r)
		return r
	}
	claimed := func(attempts int) backend.Summary {
		return with(func(r *backend.Summary) { r.Wake, r.ClaimedAt, r.Attempts = time.Time{}, now, attempts })
	}
	handedBack := func(abandons, attempts int) backend.Summary {
		return with(func(r *backend.Summary) { r.Wake, r.Abandons, r.Attempts = soon, abandons, attempts })
	}
	waiting := with(func(r *backend.Summary) { r.Status, r.Wake = run.Waiting, time.Time{} })
	for _, c := range []struct {
		name  string
		looks []backend.Summary
		kills int // after the first look
		says  string
	}{
		{name: "a run that is due", looks: []backend.Summary{ready}},
		{name: "one that is driven", looks: []backend.Summary{claimed(1)}},
		{name: "one that was handed back again", looks: []backend.Summary{handedBack(1, 0), with(func(r *backend.Summary) {
			r.Wake, r.ClaimedAt, r.Attempts, r.Abandons = time.Time{}, now, 1, 1
		}), handedBack(2, 0)}},
		{name: "one whose process was killed, and that was handed back", looks: []backend.Summary{claimed(1), claimed(2), handedBack(1, 1)}, kills: 1},
		{name: "one that waits for an answer", looks: []backend.Summary{waiting}},
		{name: "an attempt used up by a hand-back", looks: []backend.Summary{handedBack(1, 1)}, says: "1 attempts"},
		{name: "a launch that nobody began", looks: []backend.Summary{claimed(2)}, says: "2 attempts"},
		{name: "more launches than kills", looks: []backend.Summary{claimed(1), claimed(3)}, kills: 1, says: "3 attempts"},
		{name: "abandons that are forgotten", looks: []backend.Summary{handedBack(2, 0), handedBack(1, 0)}, says: "from 2 to 1"},
		{name: "as many abandons as poison", looks: []backend.Summary{handedBack(usual.abandons, 0)}, says: "abandons"},
		{name: "a rest longer than a backoff", looks: []backend.Summary{with(func(r *backend.Summary) { r.Abandons, r.Wake = 1, now.Add(time.Minute) })}, says: "from now"},
		{name: "poison", looks: []backend.Summary{with(func(r *backend.Summary) {
			r.Wake, r.Poison = time.Time{}, claim.Poison{At: now, Reason: claim.MaxAbandonsExceeded}
		})}, says: "poisoned"},
		{name: "a wake beside a claim", looks: []backend.Summary{with(func(r *backend.Summary) { r.ClaimedAt, r.Attempts = now, 1 })}, says: "with wake"},
		{name: "nothing that will wake it", looks: []backend.Summary{with(func(r *backend.Summary) { r.Wake = time.Time{} })}, says: "with wake"},
		{name: "a wake of one that waits", looks: []backend.Summary{with(func(r *backend.Summary) { r.Status = run.Waiting })}, says: "with wake"},
		{name: "a sequence that goes back", looks: []backend.Summary{ready, with(func(r *backend.Summary) { r.Seq = 2 })}, says: "from 3 to 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &watch{limits: usual, seen: map[string]sighting{}}
			for i, r := range c.looks {
				if i == 1 {
					w.kills += c.kills
				}
				w.judge(r, now, 0)
			}
			err := w.verdict()
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("it says %v, not %q", err, c.says)
			}
		})
	}
	w := &watch{limits: usual, seen: map[string]sighting{}}
	w.judge(with(func(r *backend.Summary) { r.Wake = now.Add(-time.Minute) }), now, 0)
	if waited := w.wait(); waited != time.Minute || w.wait() != 0 {
		t.Errorf("a run that is due since a minute waits for %v", waited)
	}
}
