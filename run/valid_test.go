package run

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belay-run/belay/value"
)

func TestSpecimensAreValid(t *testing.T) {
	for name, d := range all() {
		if err := d.Valid(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each change breaks one rule of a valid document.
func TestEveryRuleOfADurableDocument(t *testing.T) {
	task := func(d *Document) *Task {
		d.Tasks = append([]Task(nil), d.Tasks...)
		return &d.Tasks[0]
	}
	timer := func(d *Document) *Timer {
		d.Timers = append([]Timer(nil), d.Timers...)
		return &d.Timers[0]
	}
	interrupt := func(d *Document, i int) *Interrupt {
		d.Interrupts = append([]Interrupt(nil), d.Interrupts...)
		return &d.Interrupts[i]
	}
	for _, c := range []struct {
		rule, of, says string
		change         func(*Document)
	}{
		{"a run id is not empty", "smallest", "run id", func(d *Document) { d.ID = "" }},
		{"a run id is not oversized", "smallest", "run id", func(d *Document) { d.ID = strings.Repeat("x", 256) }},
		{"a run id is UTF-8", "smallest", "run id", func(d *Document) { d.ID = "\xff" }},
		{"a graph id is not empty", "smallest", "graph version", func(d *Document) { d.Graph.ID = "" }},
		{"a graph hash is not empty", "smallest", "graph version", func(d *Document) { d.Graph.Hash = "" }},
		{"a graph hash is UTF-8", "smallest", "UTF-8", func(d *Document) { d.Graph.Hash = "\xff" }},
		{"created is never stored", "smallest", "not one that is stored", func(d *Document) { d.Status = Created }},
		{"a status is known", "smallest", "not one that is stored", func(d *Document) { d.Status = "odd" }},
		{"the step is not negative", "smallest", "counter", func(d *Document) { d.Step = -1 }},
		{"the sequence is not negative", "smallest", "counter", func(d *Document) { d.Seq = -1 }},
		{"the event sequence is not negative", "smallest", "counter", func(d *Document) { d.EventSeq = -1 }},
		{"instants are whole microseconds", "smallest", "microseconds", func(d *Document) { d.UpdatedAt = at(0).Add(1) }},
		{"instants are UTC", "smallest", "microseconds", func(d *Document) { d.StartedAt = at(0).In(time.FixedZone("x", 60)) }},
		{"instants end with the year 9999", "smallest", "microseconds", func(d *Document) { d.StartedAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"metadata is bounded", "smallest", "metadata", func(d *Document) { d.Metadata = map[string]string{"": "x"} }},

		{"a lineage names versions", "migrated", "lineage", func(d *Document) { d.Lineage = []Ancestor{{Until: 2}} }},
		{"a lineage is UTF-8", "migrated", "lineage", func(d *Document) { d.Lineage = []Ancestor{{Hash: "\xff", Until: 2}} }},
		{"a lineage ascends", "migrated", "lineage", func(d *Document) { d.Lineage = []Ancestor{{Hash: "a", Until: 2}, {Hash: "b", Until: 2}} }},
		{"a lineage begins after the start", "migrated", "lineage", func(d *Document) { d.Lineage = []Ancestor{{Hash: "a"}} }},
		{"a lineage ends with the run", "migrated", "lineage", func(d *Document) { d.Lineage = []Ancestor{{Hash: "a", Until: d.Seq + 1}} }},
		{"a renamed node is pending or parked", "done", "neither pending nor parked", func(d *Document) { d.Renamed = []Renaming{{"a", "b"}} }},
		{"renamed nodes are sorted", "parked", "renamed", func(d *Document) { d.Renamed = []Renaming{{"charge", "x"}, {"approve", "y"}} }},
		{"a renamed node has another name", "parked", "renaming", func(d *Document) { d.Renamed = []Renaming{{"a", "a"}} }},
		{"a renamed node is UTF-8", "parked", "renaming", func(d *Document) { d.Renamed = []Renaming{{"a", "\xff"}} }},
		{"two tasks have two names", "parked", "called after", func(d *Document) { d.Renamed = []Renaming{{"approve", "charge"}} }},
		{"a renamed node's task keeps its name", "renamed", "run:step:node", func(d *Document) { d.Renamed = nil }},

		{"an output only when done", "smallest", "output", func(d *Document) { d.Output = value.Value(`{}`) }},
		{"a failure only when failed", "done", "failure", func(d *Document) { d.Failure = &Failure{Code: "c", Message: "m"} }},
		{"a failure whenever failed", "failed", "failure", func(d *Document) { d.Failure = nil }},
		{"a failure has a code", "failed", "code", func(d *Document) { d.Failure = &Failure{Message: "m"} }},
		{"a failure has a message", "failed", "message", func(d *Document) { d.Failure = &Failure{Code: "c"} }},
		{"a failure is UTF-8", "failed", "UTF-8", func(d *Document) { d.Failure = &Failure{Code: "c", Message: "\xff"} }},
		{"a reason only when cancelled", "done", "reason", func(d *Document) { d.Reason = "x" }},
		{"a reason is UTF-8", "cancelled", "UTF-8", func(d *Document) { d.Reason = "\xff" }},
		{"finished-at whenever terminal", "done", "finished-at", func(d *Document) { d.FinishedAt = time.Time{} }},
		{"finished-at only when terminal", "smallest", "finished-at", func(d *Document) { d.FinishedAt = at(0) }},

		{"inputs are sorted", "parked", "input is not sorted", func(d *Document) { d.Input = []Channel{d.Input[1], d.Input[0]} }},
		{"an input has a value", "parked", "no value", func(d *Document) { d.Input = []Channel{{Name: "a"}} }},
		{"only the start writes an input", "parked", "version 2", func(d *Document) { d.Input = []Channel{{Name: "a", Value: value.Null(), Version: 2}} }},
		{"a name is there once", "parked", "twice", func(d *Document) { d.State = []Channel{d.State[0], d.State[0]} }},
		{"a version is not negative", "parked", "negative", func(d *Document) { d.State = []Channel{{Name: "a", Value: value.Null(), Version: -1}} }},
		{"a name is UTF-8", "parked", "UTF-8", func(d *Document) { d.State = []Channel{{Name: "\xff", Value: value.Null()}} }},

		{"edges are sorted", "parked", "edges", func(d *Document) { d.Edges = []EdgeCount{{"b", 1}, {"a", 1}} }},
		{"an edge's count is not negative", "parked", "edges", func(d *Document) { d.Edges = []EdgeCount{{"b", -1}} }},
		{"barriers are sorted", "parked", "barriers", func(d *Document) { d.Barriers = []Barrier{{"b", []string{"x"}}, {"b", []string{"x"}}} }},
		{"a barrier has collected something", "parked", "barriers", func(d *Document) { d.Barriers = []Barrier{{"b", nil}} }},
		{"a barrier's sources are sorted", "parked", "barriers", func(d *Document) { d.Barriers = []Barrier{{"b", []string{"y", "x"}}} }},
		{"completions are sorted", "parked", "completed", func(d *Document) { d.Completed = []NodeCount{{"b", 1}, {"a", 1}} }},
		{"a completion's count is not negative", "parked", "completed", func(d *Document) { d.Completed = []NodeCount{{"b", -1}} }},
		{"changed names are sorted", "parked", "changed", func(d *Document) { d.Changed = []string{"b", "a"} }},
		{"pending nodes are sorted", "parked", "pending", func(d *Document) { d.Pending = []string{"b", "a"} }},
		{"nothing is pending after the end", "done", "pending", func(d *Document) { d.Pending = []string{"a"} }},

		{"tasks only while running", "parked", "tasks", func(d *Document) { d.Status = Waiting }},
		{"pending writes only beside tasks", "parked", "without a parked task", func(d *Document) { d.Tasks = nil }},
		{"tasks are sorted", "parked", "not sorted", func(d *Document) { d.Tasks = []Task{d.Tasks[1], d.Tasks[0]} }},
		{"a node has one task", "parked", "two", func(d *Document) { d.Tasks = []Task{d.Tasks[0], d.Tasks[0]} }},
		{"a task is of its run", "parked", "run:step:node", func(d *Document) { task(d).ID = "x:3:charge" }},
		{"a task is of its step", "parked", "run:step:node", func(d *Document) { d.Step++ }},
		{"a task is of its node", "parked", "run:step:node", func(d *Document) { task(d).Node = "b" }},
		{"failures are not negative", "parked", "negative", func(d *Document) { task(d).Failures = -1 }},
		{"a park reason is known", "parked", "no known reason", func(d *Document) { task(d).Reason = "odd" }},
		{"a retry has failed before", "parked", "has not failed", func(d *Document) { task(d).Failures = 0 }},
		{"a task was planned", "parked", "planned-at", func(d *Document) { task(d).PlannedAt = time.Time{} }},
		{"an error text is UTF-8", "parked", "UTF-8", func(d *Document) { task(d).LastError = "\xff" }},
		{"a snapshot is sorted", "parked", "snapshot", func(d *Document) { s := task(d); s.Snapshot = []Channel{s.Snapshot[1], s.Snapshot[0]} }},
		{"an input hash is the snapshot's", "parked", "input hash", func(d *Document) { task(d).InputHash = strings.Repeat("0", 64) }},
		{"a snapshot is its input hash's", "parked", "input hash", func(d *Document) { task(d).Snapshot = nil }},
		{"a node has a task or a write", "parked", "both", func(d *Document) { d.Writes = []Write{{Node: "charge"}} }},
		{"pending writes are sorted", "parked", "not sorted", func(d *Document) { d.Writes = []Write{d.Writes[1], d.Writes[0]} }},
		{"a skip has no update", "parked", "update", func(d *Document) { d.Writes = []Write{{Node: "x", Skipped: true, Update: d.Writes[1].Update}} }},
		{"a skip's reason is UTF-8", "parked", "UTF-8", func(d *Document) { d.Writes = []Write{{Node: "x", Reason: "\xff"}} }},
		{"an update has values", "parked", "no value", func(d *Document) { d.Writes = []Write{{Node: "x", Update: []Channel{{Name: "a"}}}} }},

		{"an interrupt has an id", "parked", "without id", func(d *Document) { interrupt(d, 0).ID = "" }},
		{"an interrupt's id is there once", "parked", "twice", func(d *Document) { interrupt(d, 1).ID = "approval" }},
		{"an interrupt has a node", "parked", "no node", func(d *Document) { interrupt(d, 0).Node = "" }},
		{"an interrupt's times are storable", "parked", "microseconds", func(d *Document) { interrupt(d, 0).RequestedAt = at(0).Add(1) }},
		{"an interrupt's status is known", "parked", "unknown status", func(d *Document) { interrupt(d, 0).Status = "odd" }},
		{"resolved-at whenever resolved", "parked", "resolved-at", func(d *Document) { interrupt(d, 1).ResolvedAt = time.Time{} }},
		{"resolved-at only when resolved", "parked", "resolved-at", func(d *Document) { interrupt(d, 0).ResolvedAt = at(1) }},
		{"an answer only when resolved", "parked", "answer", func(d *Document) { interrupt(d, 0).Answer = value.Null() }},
		{"nothing is open after the end", "failed", "open", func(d *Document) { interrupt(d, 0).Status = InterruptOpen }},
		{"nothing is closed before the end", "waiting", "closed", func(d *Document) { interrupt(d, 0).Status = InterruptClosed }},
		{"who asks is pending", "parked", "not pending", func(d *Document) { d.Pending = nil }},
		{"who asks is not parked", "parked", "parked and asks", func(d *Document) {
			d.Pending = []string{"approve", "poll"}
			*interrupt(d, 1) = Interrupt{ID: "who", Node: "poll", Status: InterruptOpen}
		}},
		{"a node asks one question at a time", "waiting", "two open", func(d *Document) {
			d.Interrupts = append(d.Interrupts, Interrupt{ID: "z", Node: "ask", Status: InterruptOpen})
		}},

		{"timers only while running", "waiting", "timers", func(d *Document) { d.Timers = []Timer{{TimerTask, "x", at(0)}} }},
		{"timers are sorted", "parked", "not sorted", func(d *Document) { d.Timers = []Timer{d.Timers[1], d.Timers[0], d.Timers[2]} }},
		{"a timer has a time", "parked", "no time", func(d *Document) { timer(d).At = time.Time{} }},
		{"a timer's kind is known", "parked", "unknown kind", func(d *Document) { timer(d).Kind = "a" }},
		{"a task has its timer", "parked", "no timer", func(d *Document) { d.Timers = d.Timers[:2] }},
		{"a deadline has its timer", "parked", "deadline", func(d *Document) { d.Timers = d.Timers[1:] }},
		{"a deadline's timer is at the deadline", "parked", "deadline", func(d *Document) { timer(d).At = at(61) }},
		{"a timer is somebody's", "parked", "without its task", func(d *Document) { d.Timers = append(d.Timers[:3:3], Timer{TimerTask, "zzz", at(0)}) }},

		{"who waits has asked", "waiting", "waiting", func(d *Document) { d.Interrupts, d.Pending = nil, nil }},
		{"who waits has nothing to run", "waiting", "waiting", func(d *Document) { d.Pending = []string{"ask", "b"} }},
		{"who only asks waits", "waiting", "running", func(d *Document) { d.Status = Running }},
	} {
		t.Run(c.rule, func(t *testing.T) {
			d := all()[c.of]
			c.change(d)
			err := d.Valid()
			if !errors.Is(err, ErrInvalidDocument) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNoDocumentIsNotValid(t *testing.T) {
	var d *Document
	if err := d.Valid(); !errors.Is(err, ErrInvalidDocument) {
		t.Error(err)
	}
}
