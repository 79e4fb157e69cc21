package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// outcome is how a run stands when a command ends, as --json prints it.
type outcome struct {
	Run        string          `json:"run"`
	Graph      belay.GraphRef  `json:"graph"`
	Status     run.Status      `json:"status"`
	Output     json.RawMessage `json:"output,omitempty"`
	Failure    *failure        `json:"failure,omitempty"`
	Interrupts []interrupt     `json:"interrupts,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Poison     *poison         `json:"poison,omitempty"`
	Hint       string          `json:"hint,omitempty"`
	Next       []string        `json:"next,omitempty"` // the commands to go on with
	Exit       int             `json:"exit"`
}

type failure struct {
	run.Failure
	Attempt int `json:"attempt,omitempty"`
}

type interrupt struct {
	ID       string          `json:"id"`
	Node     string          `json:"node"`
	Question json.RawMessage `json:"question,omitempty"`
	Schema   json.RawMessage `json:"schema,omitempty"`
	Deadline time.Time       `json:"deadline,omitzero"`
}

type poison struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

// outcome prints how the run stands.
func (d *driver) outcome(ctx context.Context, r *belay.Run) error {
	o := outcome{Run: r.ID, Graph: r.Graph, Status: r.Status, Output: r.Output, Reason: r.Reason}
	switch {
	case !r.Poison.At.IsZero():
		o.Exit = exitPoisoned
		o.Poison = &poison{r.Poison.At, r.Poison.Reason}
		o.Hint = "find out why: " + d.place.again("runs", "explain", r.ID)
		o.Next = []string{d.place.again("runs", "retry", r.ID), d.place.again("run", "--resume", r.ID)}
	case r.Status == run.Done:
		o.Exit = exitDone
	case r.Status == run.Failed:
		o.Exit = exitFailed
		o.Failure = &failure{Failure: *r.Failure}
		var err error
		if o.Failure.Attempt, err = failedAttempt(ctx, d.client, r); err != nil {
			return err
		}
	case r.Status == run.Cancelled:
		o.Exit = exitCancelled
	default:
		o.Exit = exitWaiting
		open := r.OpenInterrupts()
		for _, i := range open {
			o.Interrupts = append(o.Interrupts, interrupt{i.ID, i.Node, i.Question, i.Schema, i.Deadline})
		}
		if d.store.transient {
			o.Hint = fmt.Sprintf("memory: keeps nothing: answer it from the start, with --answer %s=JSON", open[0].Node)
			break
		}
		o.Hint = "answer it, then go on; or both at once, with --answer " + open[0].Node + "=JSON at the second command"
		for _, i := range open {
			o.Next = append(o.Next, d.place.again("runs", "resolve", r.ID, i.Node+"=JSON"))
		}
		o.Next = append(o.Next, d.place.again("run", "--resume", r.ID))
	}
	if err := d.place.terminal.print(o); err != nil {
		return err
	}
	if o.Exit != exitDone {
		return errReported{o.Exit}
	}
	return nil
}

// failedAttempt is the attempt of the node that a run failed of; 0 when its history does not say.
func failedAttempt(ctx context.Context, client *belay.Client, r *belay.Run) (attempt int, err error) {
	if r.Failure.Node == "" {
		return 0, nil
	}
	page, err := client.Events(ctx, r.ID, backend.EventQuery{After: max(0, r.EventSeq-backend.MaxLimit), Limit: backend.MaxLimit})
	for _, e := range page.Events {
		if e.Type == run.EventNodeFailed && e.Node == r.Failure.Node {
			attempt = e.Attempt
		}
	}
	return attempt, err
}

func (t *terminal) print(o outcome) error {
	if t.json {
		return t.result(o)
	}
	switch o.Exit {
	case exitDone:
		t.say("%s", t.paint(green, "done"))
		return t.result(o.Output)
	case exitFailed:
		f := o.Failure
		where := ""
		if f.Node != "" {
			where = " in node " + f.Node
		}
		if f.Attempt > 0 {
			where += fmt.Sprintf(", attempt %d", f.Attempt)
		}
		t.say("%s%s: %s: %s", t.paint(red, "failed"), where, f.Code, f.Message)
		if f.Details != nil {
			t.say("  %s", readable(f.Details))
		}
	case exitWaiting:
		for _, i := range o.Interrupts {
			t.say("%s %s asks: %s", t.paint(yellow, "waiting:"), i.Node, readable(i.Question))
			if i.Schema != nil {
				t.say("  the answer fits %s", readable(i.Schema))
			}
		}
	case exitPoisoned:
		t.say("%s since %s: %s", t.paint(red, "poisoned"), o.Poison.At.Format(time.RFC3339), o.Poison.Reason)
	case exitCancelled:
		t.say("%s: %s", t.paint(yellow, "cancelled"), o.Reason)
	}
	if o.Hint != "" {
		t.say("%s", o.Hint)
	}
	for _, command := range o.Next {
		t.say("  %s", command)
	}
	return nil
}

// readableLine is how long a value may be to stand in a line with others.
const readableLine = 100

// readable is a value for a person: in a line of its own for each part when it is long.
func readable(v json.RawMessage) string {
	if len(v) <= readableLine {
		return string(v)
	}
	var lines bytes.Buffer
	if err := json.Indent(&lines, v, "  ", "  "); err != nil {
		return string(v)
	}
	return lines.String()
}
