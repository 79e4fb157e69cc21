package belaytest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// WantStatus reports a run that has another status, and answers the run.
func (e *Engine) WantStatus(id string, want run.Status) *belay.Run {
	e.t.Helper()
	r := e.MustInspect(id)
	if r.Status != want {
		e.t.Errorf("run %s is %s, want %s%s", id, r.Status, want, e.why(r))
	}
	return r
}

// WantDone reports a run that is not done, or whose output is another. want is anything that encodes to
// the JSON of the output.
func (e *Engine) WantDone(id string, want any) {
	e.t.Helper()
	if r := e.WantStatus(id, run.Done); r.Status == run.Done {
		e.differ(fmt.Sprintf("the output of run %s", id), want, r.Output)
	}
}

// WantFailed reports a run that has not failed, or with another code: run.CodeError for an
// error of a node, run.CodePanic, run.CodeTimeout, ...
func (e *Engine) WantFailed(id, code string) {
	e.t.Helper()
	r := e.WantStatus(id, run.Failed)
	if r.Failure != nil && r.Failure.Code != code {
		e.t.Errorf("run %s failed with the code %s, want %s%s", id, r.Failure.Code, code, e.why(r))
	}
}

// WantAsked reports a run whose open questions are others. Each of want is anything that encodes to the JSON
// of a prompt; they are in the order of the interrupts' ids.
func (e *Engine) WantAsked(id string, want ...any) {
	e.t.Helper()
	r := e.MustInspect(id)
	open := r.OpenInterrupts()
	if len(open) != len(want) {
		e.t.Errorf("run %s is %s and asks %d questions, want %d%s", id, r.Status, len(open), len(want), e.why(r))
		return
	}
	for i, q := range open {
		e.differ(fmt.Sprintf("question %s of run %s", q.ID, id), want[i], q.Question)
	}
}

// WantState reports another value of a state name, an input or a field. A name that was never
// written, and has no default, is nil.
func (e *Engine) WantState(id, name string, want any) {
	e.t.Helper()
	got := e.MustInspect(id).Value(name)
	if got == nil && want == nil {
		return
	}
	e.differ(fmt.Sprintf("%s of run %s", name, id), want, got)
}

// WantStory reports a run whose story is another, as Story tells it.
func (e *Engine) WantStory(id string, want ...string) {
	e.t.Helper()
	if diff := cmp.Diff(want, e.Story(id)); diff != "" {
		e.t.Errorf("the story of run %s (-want +got):\n%s", id, diff)
	}
}

// Story tells what happened to a run, a line for each fact of a node, an interrupt and the run itself: its
// type, the node, and the code of a failure or the reason of a skip or cancel. Which fields were
// written and which edges were followed is left out.
func (e *Engine) Story(id string) []string {
	e.t.Helper()
	var story []string
	for _, event := range e.MustEvents(id) {
		switch event.Type {
		case run.EventStateUpdated, run.EventEdgeFired, run.EventCheckpointCommitted:
			continue
		}
		line := string(event.Type)
		if event.Node != "" {
			line += " " + event.Node
		}
		switch {
		case event.Failure != nil:
			line += ": " + event.Failure.Code
		case event.Reason != "":
			line += ": " + event.Reason
		}
		story = append(story, line)
	}
	return story
}

// MustEvents reads the whole history of a run, whoever owns it.
func (e *Engine) MustEvents(id string) (events []run.Event) {
	e.t.Helper()
	q := backend.EventQuery{Limit: backend.MaxLimit}
	for {
		page, err := e.Store.ListEvents(e.t.Context(), backend.System(), id, q)
		if err != nil {
			e.t.Fatalf("belaytest: events of run %s: %v", id, err)
		}
		events = append(events, page.Events...)
		if !page.HasMore {
			return events
		}
		q.After = page.Next
	}
}

// WantRuns reports another number of runs in a store: the engine's, or one that is bound to a host's
// transaction.
func WantRuns(t testing.TB, store backend.Starter, want int) {
	t.Helper()
	page, err := store.ListRuns(t.Context(), backend.System(), backend.Query{Limit: backend.MaxLimit})
	if err != nil {
		t.Fatalf("belaytest: listing runs: %v", err)
	}
	if len(page.Runs) == want && !page.HasMore {
		return
	}
	ids := make([]string, len(page.Runs))
	for i, s := range page.Runs {
		ids[i] = fmt.Sprintf("%s (%s, %s)", s.Run, s.Graph.ID, s.Status)
	}
	t.Errorf("there are %d runs, want %d: %s", len(ids), want, strings.Join(ids, ", "))
}

// why says what a run that is not as it was wanted came to.
func (e *Engine) why(r *belay.Run) string {
	e.t.Helper()
	var b strings.Builder
	if r.Failure != nil {
		fmt.Fprintf(&b, "\nit failed in node %s: %s: %s", r.Failure.Node, r.Failure.Code, r.Failure.Message)
	}
	if !r.Poison.At.IsZero() {
		fmt.Fprintf(&b, "\nit is poisoned: %s", r.Poison.Reason)
	}
	for _, q := range r.OpenInterrupts() {
		fmt.Fprintf(&b, "\nit asks %s: %s", q.ID, q.Question)
	}
	fmt.Fprintf(&b, "\nits story: %s", strings.Join(e.Story(r.ID), ", "))
	return b.String()
}

// differ reports a difference of two values as JSON, whatever the order of keys and the white space.
func (e *Engine) differ(what string, want any, got value.Value) {
	e.t.Helper()
	raw, err := value.Of(want)
	if err != nil {
		e.t.Fatalf("belaytest: what is wanted does not encode to JSON: %v", err)
	}
	if diff := cmp.Diff(decoded(raw), decoded(got)); diff != "" {
		e.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// absent is what there is no value of.
type absent string

func decoded(v value.Value) (out any) {
	if v == nil {
		return absent("no value")
	}
	in := json.NewDecoder(bytes.NewReader(v))
	in.UseNumber()
	if err := in.Decode(&out); err != nil {
		return err.Error()
	}
	return out
}
