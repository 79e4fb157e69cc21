package run_test

import (
	"bytes"
	"reflect"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/run"
)

// checkProposal checks what holds for every proposal: M6, M8, the sequences, and the
// order of events. from is nil for the first.
func checkProposal(t rapid.TB, from *run.Document, p run.Proposal) {
	t.Helper()
	d := p.Document
	if err := d.Valid(); err != nil {
		t.Fatalf("proposed a document that may not be stored: %v", err)
	}
	was, seq, eventSeq := run.Created, int64(0), int64(0)
	if from != nil {
		was, seq, eventSeq = from.Status, from.Seq, from.EventSeq
		if d.ID != from.ID || d.Graph != from.Graph && p.Type != checkpoint.GraphMigrated || !d.StartedAt.Equal(from.StartedAt) {
			t.Fatalf("the identity of the run changed")
		}
	}
	if !run.CanMove(was, d.Status) {
		t.Fatalf("no move of the table leads from %s to %s", was, d.Status)
	}
	if d.Seq != seq+1 || p.Expected != seq {
		t.Fatalf("checkpoint %d on %d, expecting %d", d.Seq, seq, p.Expected)
	}
	if !p.Schedule.Valid() || !run.Fits(p.Schedule, d.Status) {
		t.Fatalf("the schedule %s does not fit %s", p.Schedule.Kind, d.Status)
	}
	if !p.Type.Valid() || !p.Now.Equal(d.UpdatedAt) {
		t.Fatalf("type %q, now %s, updated at %s", p.Type, p.Now, d.UpdatedAt)
	}
	step := d.Step
	if from != nil {
		step = from.Step
	}
	checkEvents(t, eventSeq, step, p)
	checkRoundTrip(t, d)
}

// checkRoundTrip is M8.
func checkRoundTrip(t rapid.TB, d *run.Document) {
	t.Helper()
	raw, err := run.Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	back, err := run.Decode(raw)
	if err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	if !reflect.DeepEqual(d, back) {
		t.Fatalf("decoding gave another document (-encoded +decoded):\n%s", cmp.Diff(d, back))
	}
	again, err := run.Encode(back)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(raw, again) {
		t.Fatalf("encoded twice:\n%s\n%s", raw, again)
	}
}

// rank is an event's place in the order of a commit.
func rank(e run.Event) (int, string) {
	switch e.Type {
	case run.EventNodeCompleted, run.EventNodeSkipped, run.EventNodeSnoozed, run.EventNodeFailed:
		return 0, e.Node
	case run.EventStateUpdated:
		return 1, e.Field
	case run.EventEdgeFired:
		return 2, e.Edge
	case run.EventInterruptRequested, run.EventInterruptResolved, run.EventInterruptClosed:
		return 3, e.Interrupt
	case run.EventCheckpointCommitted:
		return 5, ""
	default:
		return 4, ""
	}
}

// checkEvents checks the numbers, the order, that no fact is told twice, and that one
// checkpoint_committed closes them.
func checkEvents(t rapid.TB, last, step int64, p run.Proposal) {
	t.Helper()
	for i, e := range p.Events {
		if err := e.Valid(); err != nil {
			t.Fatal(err)
		}
		if e.Run != p.Document.ID || e.Seq != last+int64(i)+1 || e.Step != step || !e.At.Equal(p.Now) {
			t.Fatalf("event %d of %s in step %d at %s, after event %d in step %d", e.Seq, e.Run, e.Step, e.At, last+int64(i), step)
		}
		raw, err := run.EncodeEvent(e)
		if err != nil {
			t.Fatal(err)
		}
		back, err := run.DecodeEvent(raw)
		if err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		if !reflect.DeepEqual(e, back) {
			t.Fatalf("decoding gave another event (-encoded +decoded):\n%s", cmp.Diff(e, back))
		}
		if i == 0 {
			continue
		}
		r0, k0 := rank(p.Events[i-1])
		r1, k1 := rank(e)
		if r0 > r1 || r0 == r1 && k0 >= k1 {
			t.Fatalf("%s %s comes after %s %s", e.Type, k1, p.Events[i-1].Type, k0)
		}
	}
	if len(p.Events) == 0 {
		t.Fatal("no events")
	}
	closing := p.Events[len(p.Events)-1]
	want := run.Event{Type: run.EventCheckpointCommitted, Checkpoint: p.Type, Commit: p.Document.Seq}
	if closing.Type != want.Type || closing.Checkpoint != want.Checkpoint || closing.Commit != want.Commit {
		t.Fatalf("the closing event is %+v", closing)
	}
	if p.Document.EventSeq != closing.Seq {
		t.Fatalf("event sequence %d, but the last event is %d", p.Document.EventSeq, closing.Seq)
	}
	if p.Type == checkpoint.RunInitialized && p.Document.Seq != 1 {
		t.Fatal("initialized twice")
	}
}
