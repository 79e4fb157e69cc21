package proptest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// The kit writes its documents by hand: durable-valid, and as small as they can be. It
// never asks the machine, so that a fault in graph execution cannot hide one in a backend.

// published is a graph version with the given id: canonical bytes and their digest. The
// number makes versions differ.
func published(id string, version int) (graph.Ref, value.Value) {
	raw := fmt.Sprintf(`{"edges":{"start":{"from":"$start","to":"work"}},"id":%q,"nodes":{"work":{"use":"work","version":1}},"policies":{"max_supersteps":%d}}`,
		id, 100+version)
	sum := sha256.Sum256([]byte(raw))
	return graph.Ref{ID: id, Hash: hex.EncodeToString(sum[:])}, value.Value(raw)
}

// checkpointID is the nth id of a commit: a ULID by its alphabet and length.
func checkpointID(n int) checkpoint.ID {
	return checkpoint.ID(fmt.Sprintf("%026d", n))
}

// opening is the first commit of a run that is due at now.
func opening(id string, ref graph.Ref, now time.Time, commit checkpoint.ID) backend.Initialization {
	d := &run.Document{
		ID: id, Graph: ref, Status: run.Running, Step: 1,
		Pending: []string{"work"},
		Seq:     1, EventSeq: 2,
		StartedAt: now, UpdatedAt: now,
	}
	return backend.Initialization{
		Proposal: run.Proposal{
			Document: d,
			Events: []run.Event{
				{Run: id, Seq: 1, Type: run.EventRunInitialized, At: now, Step: 1},
				closing(d, checkpoint.RunInitialized, now),
			},
			Type:     checkpoint.RunInitialized,
			Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseNow},
			Now:      now,
		},
		CheckpointID: commit,
	}
}

// closing is the event that closes a commit of d.
func closing(d *run.Document, kind checkpoint.Type, now time.Time) run.Event {
	return run.Event{
		Run: d.ID, Seq: d.EventSeq, Type: run.EventCheckpointCommitted, At: now, Step: d.Step,
		Checkpoint: kind, Commit: d.Seq,
	}
}

// end is where a drafted commit leads.
type end string

const (
	toRetain    end = "retain"
	toNow       end = "release-now"
	toAt        end = "release-at"
	toWaiting   end = "waiting"
	toDone      end = "done"
	toFailed    end = "failed"
	toCancelled end = "cancelled"
)

// ends lists every end.
var ends = []end{toRetain, toNow, toAt, toWaiting, toDone, toFailed, toCancelled}

// terminal lists the ends after which nothing follows.
var terminal = []end{toDone, toFailed, toCancelled}

// status is the status of a document at that end.
func (e end) status() run.Status {
	switch e {
	case toWaiting:
		return run.Waiting
	case toDone:
		return run.Done
	case toFailed:
		return run.Failed
	case toCancelled:
		return run.Cancelled
	default:
		return run.Running
	}
}

// next is a commit on top of prev that leads to e. at is the wake of toAt.
func next(prev *run.Document, e end, now, at time.Time) run.Proposal {
	d := advance(prev, now)
	p := run.Proposal{Document: d, Expected: prev.Seq, Now: now}
	fact := run.Event{Run: d.ID, Type: run.EventNodeCompleted, At: now, Step: prev.Step, Node: "work", Task: task(prev), Attempt: 1}
	switch e {
	case toRetain:
		p.Type, p.Schedule.Kind = checkpoint.StepCommitted, checkpoint.Retain
	case toNow:
		p.Type, p.Schedule.Kind = checkpoint.StepCommitted, checkpoint.ReleaseNow
	case toAt:
		p.Type, p.Schedule = checkpoint.RetryScheduled, checkpoint.Schedule{Kind: checkpoint.ReleaseAt, At: at}
	case toWaiting:
		p.Type, p.Schedule.Kind = checkpoint.InterruptRequested, checkpoint.ReleaseExternal
		d.Status = run.Waiting
		question := "question-" + strconv.FormatInt(d.Seq, 10)
		d.Interrupts = append(d.Interrupts, run.Interrupt{
			ID: question, Node: "work", Question: value.Value(`"go on?"`), Status: run.InterruptOpen, RequestedAt: now,
		})
		slices.SortFunc(d.Interrupts, func(a, b run.Interrupt) int { return strings.Compare(a.ID, b.ID) })
		fact = run.Event{Run: d.ID, Type: run.EventInterruptRequested, At: now, Step: prev.Step, Node: "work", Interrupt: question}
	default:
		p.Schedule.Kind = checkpoint.ReleaseTerminal
		d.Status, d.FinishedAt, d.Pending = e.status(), now, nil
		for i := range d.Interrupts {
			if d.Interrupts[i].Status == run.InterruptOpen {
				d.Interrupts[i].Status = run.InterruptClosed
			}
		}
		fact = run.Event{Run: d.ID, At: now, Step: prev.Step}
		switch e {
		case toDone:
			p.Type, fact.Type, d.Output = checkpoint.RunCompleted, run.EventRunCompleted, value.Value(`{}`)
		case toFailed:
			failure := &run.Failure{Code: run.CodeError, Message: "it did not work", Node: "work"}
			p.Type, fact.Type, d.Failure, fact.Failure = checkpoint.RunFailed, run.EventRunFailed, failure, failure
		default:
			p.Type, fact.Type, d.Reason, fact.Reason = checkpoint.RunCancelled, run.EventRunCancelled, "enough", "enough"
		}
	}
	fact.Seq = prev.EventSeq + 1
	p.Events = []run.Event{fact, closing(d, p.Type, now)}
	return p
}

// resume is a mutation's commit that answers the open questions of a waiting run.
func resume(prev *run.Document, now time.Time) run.Proposal {
	d := advance(prev, now)
	d.Status = run.Running
	fact := run.Event{Run: d.ID, Seq: prev.EventSeq + 1, Type: run.EventInterruptResolved, At: now, Step: prev.Step, Node: "work"}
	for i := range d.Interrupts {
		if d.Interrupts[i].Status == run.InterruptOpen {
			d.Interrupts[i].Status, d.Interrupts[i].ResolvedAt, d.Interrupts[i].Answer = run.InterruptResolved, now, value.Value(`true`)
			fact.Interrupt = d.Interrupts[i].ID
		}
	}
	return run.Proposal{
		Document: d,
		Events:   []run.Event{fact, closing(d, checkpoint.InterruptResolved, now)},
		Type:     checkpoint.InterruptResolved,
		Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseNow},
		Expected: prev.Seq,
		Now:      now,
	}
}

// advance is a copy of prev with everything that grows by one commit grown by one commit,
// and a state that no other commit of the run has.
func advance(prev *run.Document, now time.Time) *run.Document {
	d := *prev
	d.Seq, d.Step, d.EventSeq, d.UpdatedAt = prev.Seq+1, prev.Step+1, prev.EventSeq+2, now
	d.State = []run.Channel{{Name: "n", Value: value.Value(strconv.FormatInt(d.Seq, 10)), Version: d.Seq}}
	d.Completed = []run.NodeCount{{Node: "work", Count: prev.Seq}}
	d.Pending = []string{"work"}
	d.Interrupts = slices.Clone(prev.Interrupts)
	return &d
}

// task is the id of the task of d's step.
func task(d *run.Document) string {
	return fmt.Sprintf("%s:%d:work", d.ID, d.Step)
}

// edited is a copy of a proposal with a document of its own, changed by edit.
func edited(p run.Proposal, edit func(p *run.Proposal, d *run.Document)) run.Proposal {
	d := *p.Document
	p.Document, p.Events = &d, slices.Clone(p.Events)
	edit(&p, &d)
	return p
}

// newerFormat is an encoded document in a format that no build reads yet.
func newerFormat(raw []byte) ([]byte, error) {
	var envelope map[string]json.RawMessage
	if err := json.Unmarshal(raw, &envelope); err != nil {
		return nil, err
	}
	envelope["format"] = json.RawMessage(strconv.Itoa(run.Format + 1000))
	return json.Marshal(envelope)
}
