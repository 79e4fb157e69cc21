package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/belay-run/belay"
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

// outcome prints how the run stands. failed is the event of the failure, nil when none was seen.
func (t *terminal) outcome(r *belay.Run, failed *run.Event, path string) error {
	o := outcome{Run: r.ID, Graph: r.Graph, Status: r.Status, Output: r.Output, Reason: r.Reason}
	switch {
	case !r.Poison.At.IsZero():
		o.Exit = exitPoisoned
		o.Poison = &poison{r.Poison.At, r.Poison.Reason}
	case r.Status == run.Done:
		o.Exit = exitDone
	case r.Status == run.Failed:
		o.Exit = exitFailed
		o.Failure = &failure{Failure: *r.Failure}
		if failed != nil && failed.Node == r.Failure.Node {
			o.Failure.Attempt = failed.Attempt
		}
	case r.Status == run.Cancelled:
		o.Exit = exitCancelled
	default:
		o.Exit = exitWaiting
		for _, i := range r.OpenInterrupts() {
			o.Interrupts = append(o.Interrupts, interrupt{i.ID, i.Node, i.Question, i.Schema, i.Deadline})
		}
		o.Hint = fmt.Sprintf("answer it from the start: belay run %s ... --answer %s=JSON", path, o.Interrupts[0].Node)
	}
	if err := t.print(o); err != nil {
		return err
	}
	if o.Exit != exitDone {
		return errReported{o.Exit}
	}
	return nil
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
			t.say("  %s", f.Details)
		}
	case exitWaiting:
		for _, i := range o.Interrupts {
			t.say("%s %s asks: %s", t.paint(yellow, "waiting:"), i.Node, i.Question)
			if i.Schema != nil {
				t.say("  the answer fits %s", i.Schema)
			}
		}
		t.say("%s", o.Hint)
	case exitPoisoned:
		t.say("%s since %s: %s", t.paint(red, "poisoned"), o.Poison.At.Format(time.RFC3339), o.Poison.Reason)
	case exitCancelled:
		t.say("%s: %s", t.paint(yellow, "cancelled"), o.Reason)
	}
	return nil
}
