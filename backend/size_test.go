package backend

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// awkward is text whose encoding is longer than itself.
var awkward = rapid.StringOf(rapid.SampledFrom([]rune("\x00\x01\x1f\"\\<>&\u2028\u00e9\U0001F600a")))

func drawChannels(t *rapid.T, name string) []run.Channel {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) run.Channel {
		return run.Channel{
			Name: awkward.Draw(t, "name"), Version: rapid.Int64Range(0, 1<<62).Draw(t, "version"),
			Value: value.Value(`"` + strings.Repeat("x", rapid.IntRange(0, 50).Draw(t, "size")) + `"`),
		}
	}), 0, 3).Draw(t, name)
}

func drawFailure(t *rapid.T) *run.Failure {
	if rapid.Bool().Draw(t, "no failure") {
		return nil
	}
	return &run.Failure{
		Code: "c" + awkward.Draw(t, "code"), Message: "m" + awkward.Draw(t, "message"), Node: awkward.Draw(t, "node"),
		Details: value.Value(`{"a":1}`),
	}
}

var drawTime = rapid.Custom(func(t *rapid.T) time.Time {
	return time.UnixMicro(rapid.Int64Range(0, 253402300799_000000).Draw(t, "micros")).UTC()
})

func drawDocument(t *rapid.T) *run.Document {
	names := rapid.SliceOfN(awkward, 0, 3)
	return &run.Document{
		ID: awkward.Draw(t, "id"), Graph: graph.Ref{ID: awkward.Draw(t, "graph"), Hash: awkward.Draw(t, "hash")},
		Status: rapid.SampledFrom([]run.Status{run.Running, run.Cancelled}).Draw(t, "status"), Step: 1 << 62,
		Input: drawChannels(t, "input"), State: drawChannels(t, "state"), Output: value.Value(`{}`), Failure: drawFailure(t),
		Reason: awkward.Draw(t, "reason"),
		Edges:  rapid.SliceOfN(rapid.Custom(func(t *rapid.T) run.EdgeCount { return run.EdgeCount{Edge: awkward.Draw(t, "edge"), Fired: 1 << 62} }), 0, 3).Draw(t, "edges"),
		Barriers: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) run.Barrier {
			return run.Barrier{Edge: awkward.Draw(t, "edge"), Sources: append(names.Draw(t, "sources"), "s")}
		}), 0, 3).Draw(t, "barriers"),
		Changed: names.Draw(t, "changed"), Pending: names.Draw(t, "pending"),
		Completed: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) run.NodeCount { return run.NodeCount{Node: awkward.Draw(t, "node"), Count: 1 << 62} }), 0, 3).Draw(t, "completed"),
		Tasks: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) run.Task {
			return run.Task{
				ID: awkward.Draw(t, "task"), Node: awkward.Draw(t, "node"), Failures: 1 << 62, LastError: awkward.Draw(t, "error"),
				Snapshot: drawChannels(t, "snapshot"), InputHash: awkward.Draw(t, "hash"), PlannedAt: drawTime.Draw(t, "planned"), Reason: run.ParkSnooze,
			}
		}), 0, 3).Draw(t, "tasks"),
		Writes: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) run.Write {
			return run.Write{Node: awkward.Draw(t, "node"), Update: drawChannels(t, "update"), Skipped: true, Reason: awkward.Draw(t, "reason")}
		}), 0, 3).Draw(t, "writes"),
		Timers: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) run.Timer {
			return run.Timer{Kind: run.TimerInterrupt, Key: awkward.Draw(t, "key"), At: drawTime.Draw(t, "at")}
		}), 0, 3).Draw(t, "timers"),
		Interrupts: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) run.Interrupt {
			return run.Interrupt{
				ID: awkward.Draw(t, "id"), Node: awkward.Draw(t, "node"), Field: awkward.Draw(t, "field"), Question: value.Value(`"?"`),
				Schema: value.Value(`{}`), Deadline: drawTime.Draw(t, "deadline"), Default: value.Null(), Status: run.InterruptResolved,
				Answer: value.Value(`true`), RequestedAt: drawTime.Draw(t, "asked"), ResolvedAt: drawTime.Draw(t, "resolved"),
			}
		}), 0, 3).Draw(t, "interrupts"),
		Seq: 1 << 62, EventSeq: 1 << 62,
		StartedAt: drawTime.Draw(t, "started"), UpdatedAt: drawTime.Draw(t, "updated"), FinishedAt: drawTime.Draw(t, "finished"),
		Metadata: rapid.MapOfN(awkward, awkward, 0, 3).Draw(t, "metadata"),
	}
}

func TestNoDocumentOverItsLimitPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDocument(t)
		raw, err := run.Encode(d)
		if err != nil {
			t.Fatalf("encoding: %v", err)
		}
		if err := run.CheckDocumentSize(d, len(raw)); err != nil {
			t.Errorf("at its limit: %v", err)
		}
		if err := run.CheckDocumentSize(d, len(raw)-1); !errors.Is(err, value.ErrTooLarge) {
			t.Errorf("of %d bytes, a byte over its limit: %v", len(raw), err)
		}
	})
}

func TestNoEventOverItsLimitPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := run.Event{
			Run: "r" + awkward.Draw(t, "run"), Seq: 1 << 62, Type: run.EventCheckpointCommitted, At: drawTime.Draw(t, "at").Add(time.Microsecond), Step: 1 << 62,
			Node: awkward.Draw(t, "node"), Task: awkward.Draw(t, "task"), Attempt: 1 << 62, Edge: awkward.Draw(t, "edge"),
			Field: awkward.Draw(t, "field"), Version: 1 << 62, Interrupt: awkward.Draw(t, "interrupt"), Reason: awkward.Draw(t, "reason"),
			Wake: drawTime.Draw(t, "wake"), Failure: drawFailure(t), Checkpoint: checkpoint.InterruptRequested, Commit: 1 << 62,
			Data: value.Value(`{"a":[1,2,3]}`),
		}
		raw, err := run.EncodeEvent(e)
		if err != nil {
			t.Fatalf("encoding: %v", err)
		}
		if err := run.CheckEventSize(&e, len(raw)); err != nil {
			t.Errorf("at its limit: %v", err)
		}
		if err := run.CheckEventSize(&e, len(raw)-1); !errors.Is(err, value.ErrTooLarge) {
			t.Errorf("of %d bytes, a byte over its limit: %v", len(raw), err)
		}
	})
}

// H26: limit - 1, limit and limit + 1 bytes, exactly, as encoded.
func TestSizesAreLimitedToTheByte(t *testing.T) {
	now := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	d := &run.Document{
		ID: "a", Graph: graph.Ref{ID: "g", Hash: "h"}, Status: run.Running, Step: 1, Seq: 1, StartedAt: now, UpdatedAt: now,
		State: []run.Channel{{Name: "text", Value: value.Value(`"` + strings.Repeat("x", 1000) + `"`), Version: 1}},
	}
	raw, err := run.Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	e := run.Event{Run: "a", Seq: 1, Type: run.EventRunInitialized, At: now, Step: 1, Data: value.Value(`"` + strings.Repeat("x", 1000) + `"`)}
	event, err := run.EncodeEvent(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range []int{-1, 0, 1} {
		err := run.CheckDocumentSize(d, len(raw)+room)
		if tooLarge := errors.Is(err, value.ErrTooLarge); tooLarge != (room < 0) {
			t.Errorf("a document of %d bytes under a limit of %d answered %v", len(raw), len(raw)+room, err)
		}
		err = run.CheckEventSize(&e, len(event)+room)
		if tooLarge := errors.Is(err, value.ErrTooLarge); tooLarge != (room < 0) {
			t.Errorf("an event of %d bytes under a limit of %d answered %v", len(event), len(event)+room, err)
		}
	}
}

func TestAnInstantIsRecognized(t *testing.T) {
	now := time.Now()
	for _, at := range []time.Time{
		{},
		now, now.UTC(), now.Round(0), now.Truncate(time.Microsecond), now.UTC().Truncate(time.Microsecond),
		now.UTC().Truncate(time.Second), time.Unix(0, 0), time.Unix(0, 0).UTC(), time.UnixMicro(-1).UTC(), time.Unix(0, -1).UTC(),
		time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC), time.Date(2031, 1, 1, 0, 0, 0, 0, time.FixedZone("", 0)),
	} {
		if got, want := isInstant(at), at == claim.Instant(at); got != want {
			t.Errorf("%v is an instant: %v, want %v", at, got, want)
		}
	}
}
