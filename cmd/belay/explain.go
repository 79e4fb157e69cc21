package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

func newRunsExplain(d *desk) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain RUN",
		Short: "Say why a run is where it is, and what happens next",
		Long: `Say, from what is stored, why a run is where it is, what happens next, and which commands move it. Nothing
is changed.`,
		Args: oneRun(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.useRun(cmd.Context(), args[0], func(s *store, info backend.Info) error {
				h := holder{}
				if !info.ClaimedAt.IsZero() {
					var err error
					if h, err = s.holder(cmd.Context(), info.Document.ID); err != nil {
						return err
					}
				}
				now, err := s.now(cmd.Context())
				if err != nil {
					return err
				}
				e := explain(info, h, now, d.place.again)
				if d.terminal.json {
					return d.terminal.result(e)
				}
				return d.printExplanation(e)
			})
		},
	}
	return exits(cmd, exitInfrastructure)
}

func (d *desk) printExplanation(e *explanation) error {
	var b strings.Builder
	fmt.Fprintf(&b, "run %s of %s is %s\n", e.Run, e.Graph, e.State)
	for _, s := range e.Because {
		fmt.Fprintf(&b, "%s\n", s)
	}
	if len(e.Next) > 0 {
		fmt.Fprintf(&b, "\n")
	}
	for _, n := range e.Next {
		fmt.Fprintf(&b, "%s:\n  %s\n", n.To, n.Command)
	}
	_, err := fmt.Fprint(d.terminal.out, b.String())
	return err
}

// explanation says why a run is where it is, as --json prints it.
type explanation struct {
	Run     string     `json:"run"`
	Graph   string     `json:"graph"`
	Status  run.Status `json:"status"`
	State   state      `json:"state"`
	Because []string   `json:"because"` // sentences
	Next    []step     `json:"next,omitempty"`
}

// step is a command that moves the run.
type step struct {
	To      string `json:"to"`
	Command string `json:"command"`
}

// explainer puts an explanation together.
type explainer struct {
	info  backend.Info
	doc   *run.Document
	now   time.Time
	again func(words ...string) string
	out   *explanation
}

// explain tells it from stored facts alone.
func explain(info backend.Info, h holder, now time.Time, again func(words ...string) string) *explanation {
	doc := info.Document
	x := &explainer{info: info, doc: doc, now: now, again: again, out: &explanation{
		Run: doc.ID, Graph: doc.Graph.ID, Status: doc.Status, State: stateOf(summaryOf(info), now),
	}}
	switch x.out.State {
	case stateReady:
		x.say("It is due since %s, and no process has taken it yet.", x.at(info.Wake))
		x.work()
		x.resume("go on with it, unless a service does")
	case stateScheduled:
		x.scheduled()
	case stateClaimed:
		x.say("It is held by %s; the last sign of life came at %s.", h, x.at(info.ClaimedAt))
		x.say("Its claim expires at %s unless it is refreshed before; from then on any process may take the run over. "+
			"(A claim lasts %s here; a service may use another time.)", x.at(info.ClaimedAt.Add(claimTTL)), claimTTL)
		x.work()
		if h.gone() {
			x.next("take it over at once", again("run", "--resume", doc.ID, "--steal"))
		}
		x.resume("wait for it, and go on with it then")
	case stateExpired:
		x.say("It was held by %s; the last sign of life came at %s.", h, x.at(info.ClaimedAt))
		x.say("Its claim has expired: the next process that looks for work takes the run over, after its last checkpoint.")
		x.work()
		x.resume("take it over")
	case statePoisoned:
		x.poisoned()
	case state(run.Waiting):
		x.say("Nothing runs, and nothing is due: it waits for an answer.")
		x.questions()
		x.next("go on with it then, unless a service does", again("run", "--resume", doc.ID))
	case state(run.Done):
		x.say("It ended well at %s, after %s. Nothing happens to it any more.", x.at(doc.FinishedAt), count(int(doc.Step), "superstep"))
		x.next("see its output", again("runs", "show", doc.ID))
	case state(run.Failed):
		x.say("It failed at %s: %s. Nothing happens to it any more.", x.at(doc.FinishedAt), cut(failureText(doc.Failure)))
		x.next("see how it came to that", again("runs", "events", doc.ID))
	case state(run.Cancelled):
		reason := ""
		if doc.Reason != "" {
			reason = ": " + cut(doc.Reason)
		}
		x.say("It was cancelled at %s%s. Nothing happens to it any more.", x.at(doc.FinishedAt), reason)
	}
	return x.out
}

func (x *explainer) say(format string, args ...any) {
	x.out.Because = append(x.out.Because, fmt.Sprintf(format, args...))
}

func (x *explainer) next(to, command string) { x.out.Next = append(x.out.Next, step{to, command}) }

func (x *explainer) resume(to string) { x.next(to, x.again("run", "--resume", x.doc.ID)) }

// at is an instant and how far it is away.
func (x *explainer) at(t time.Time) string {
	d := t.Sub(x.now)
	if d < 0 {
		return fmt.Sprintf("%s (%s ago)", clock(t), span(-d))
	}
	return fmt.Sprintf("%s (in %s)", clock(t), span(d))
}

// span is a duration as people read it.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day {
		return fmt.Sprintf("%d days", d/day)
	}
	return d.Round(time.Second).String()
}

// scheduled is for a run that is due later.
func (x *explainer) scheduled() {
	switch {
	case x.doc.Seq == 1:
		x.say("It is to start at %s.", x.at(x.info.Wake))
	case x.doc.NeedsAnswer():
		x.say("Nothing runs: it waits for an answer, and goes on without one at %s.", x.at(x.info.Wake))
	case x.info.Abandons > 0:
		x.say("It was handed back by a process that cannot run it, and is due again at %s.", x.at(x.info.Wake))
	default:
		x.say("It is due again at %s. Until then nothing of it runs.", x.at(x.info.Wake))
	}
	x.work()
	x.resume("wait for it, and drive it, unless a service does")
}

func (x *explainer) poisoned() {
	p := x.info.Poison
	switch p.Reason {
	case claim.MaxAttemptsExceeded:
		x.say("It is poisoned since %s: it was launched %d times in a row, and no launch came to a checkpoint.", x.at(p.At), x.info.Attempts)
		x.say("That is what a node does that ends its process, or a process that is killed in it each time.")
	case claim.MaxAbandonsExceeded:
		x.say("It is poisoned since %s: it was handed back %d times in a row, by processes that cannot run it.", x.at(p.At), x.info.Abandons)
		x.say("That is what happens when no process has the types, or the versions, of its nodes: start one that has.")
	default:
		x.say("It is poisoned since %s: %s.", x.at(p.At), p.Reason)
	}
	x.say("Nothing happens to it until it is freed.")
	x.work()
	x.next("free it, once the cause is mended", x.again("runs", "retry", x.doc.ID))
	x.next("give it up", x.again("runs", "cancel", x.doc.ID))
}

// work tells what the run is in the middle of.
func (x *explainer) work() {
	d := x.doc
	parked := map[string]bool{}
	for _, t := range d.Tasks {
		parked[t.Node] = true
		x.task(t)
	}
	for _, w := range d.Writes {
		x.say("Node %s has finished in this superstep: its result is kept, and it does not run again.", w.Node)
	}
	x.questions()
	asking := map[string]bool{}
	for _, i := range d.OpenInterrupts() {
		asking[i.Node] = true
	}
	var nodes []string
	for _, n := range d.Pending {
		if !parked[n] && !asking[n] {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) > 0 {
		x.say("Superstep %d executes %s.", d.Step, listing(nodes))
	}
	if n := x.info.Attempts; n > 0 && x.info.Poison.At.IsZero() {
		x.say("It was launched %s since its last checkpoint; after %d launches without one it is poisoned.", times(int64(n)), maxAttempts)
	}
}

// task tells of a parked task.
func (x *explainer) task(t run.Task) {
	until := ""
	for _, timer := range x.doc.Timers {
		if timer.Kind == run.TimerTask && timer.Key == t.ID {
			until = " until " + x.at(timer.At)
		}
	}
	if t.Reason == run.ParkSnooze {
		x.say("Node %s sleeps%s.", t.Node, until)
		return
	}
	x.say("Node %s is parked%s, for attempt %d. Its last one failed: %s.", t.Node, until, t.Failures+1, cut(t.LastError))
}

// questions tells what is asked, and how it is answered.
func (x *explainer) questions() {
	for _, i := range x.doc.OpenInterrupts() {
		deadline := ""
		if !i.Deadline.IsZero() {
			deadline = fmt.Sprintf("; without an answer %s counts, at %s", cut(string(i.Default)), x.at(i.Deadline))
		}
		x.say("Node %s asks since %s: %s%s.", i.Node, x.at(i.RequestedAt), cut(string(i.Question)), deadline)
		if i.Schema != nil {
			x.say("The answer to node %s fits %s.", i.Node, cut(string(i.Schema)))
		}
		x.next("answer node "+i.Node, x.again("runs", "resolve", x.doc.ID, i.Node+"=JSON"))
	}
}

// listing is names as a sentence has them.
func listing(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
