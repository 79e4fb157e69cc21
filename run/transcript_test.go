package run_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// TestTranscripts plays the transcripts under testdata/transcripts: conversations with
// the machine, in which a small vehicle plans, settles and commits, signals come in
// between, and the clock moves only when it is told to. testdata/transcripts/README.md
// says how to read and write them; -rewrite writes the answers anew.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		if strings.HasSuffix(path, ".md") {
			return
		}
		s := &stage{t: t, now: epoch}
		datadriven.RunTest(t, path, s.play)
	})
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// testCatalog knows one node type that reads and writes whatever a graph lists.
func testCatalog() graph.Catalog {
	return &graph.Manifest{Format: 1, Nodes: []graph.NodeType{{Name: "work", Version: 1, OpenReads: true, OpenWrites: true}}}
}

func publish(t testing.TB, yaml string) *graph.Compiled {
	t.Helper()
	doc, err := graph.ParseYAML([]byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	g, err := graph.Publish(doc, testCatalog())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// stage is a run, its machine, and a vehicle that holds a plan.
type stage struct {
	t       *testing.T
	machine *run.Machine
	limits  value.Limits
	now     time.Time
	doc     *run.Document // the committed one
	held    *run.Document // the one that the vehicle planned
	plan    run.Plan
}

func (s *stage) play(t *testing.T, td *datadriven.TestData) string {
	s.t = t
	out, err := s.command(td)
	if err != nil {
		return out + "refused: " + err.Error() + "\n"
	}
	return out
}

func (s *stage) command(td *datadriven.TestData) (string, error) {
	switch td.Cmd {
	case "graph":
		doc, err := graph.ParseYAML([]byte("id: g\n" + td.Input))
		if err != nil {
			return "", err
		}
		g, err := graph.Publish(doc, testCatalog())
		if err != nil {
			return "", err
		}
		s.machine, s.doc, s.now = run.NewMachine(g, s.limits), nil, epoch
		return "ok\n", nil
	case "limits":
		for _, arg := range td.CmdArgs {
			var n int
			if _, err := fmt.Sscan(arg.Vals[0], &n); err != nil {
				return "", err
			}
			switch arg.Key {
			case "document":
				s.limits.Document = n
			case "event":
				s.limits.EventPayload = n
			case "value":
				s.limits.Value = n
			}
		}
		return "ok\n", nil
	case "start":
		in := run.Initial{Run: "r", Input: value.Value(td.Input)}
		for _, arg := range td.CmdArgs {
			switch arg.Key {
			case "after":
				in.StartAt = s.now.Add(s.duration(arg.Vals[0]))
			case "metadata":
				in.Metadata = map[string]string{arg.Vals[0]: arg.Vals[1]}
			}
		}
		p, err := s.machine.Init(in, s.now)
		if err != nil {
			return "", err
		}
		s.doc = nil
		return s.commit(p), nil
	case "plan":
		plan, err := s.machine.Plan(s.doc, s.now)
		if err != nil {
			return "", err
		}
		s.plan, s.held = plan, s.doc
		return s.tellPlan(), nil
	case "settle":
		results, err := s.results(td.Input)
		if err != nil {
			s.t.Fatalf("%s: %v", td.Pos, err)
		}
		p, err := s.machine.Settle(s.held, s.plan, results, s.now)
		if err != nil {
			return "", err
		}
		return s.commit(p), nil
	case "resolve":
		p, err := s.machine.Resolve(s.doc, td.CmdArgs[0].Key, value.Value(td.Input), s.now)
		if err != nil {
			return "", err
		}
		return s.commit(p), nil
	case "cancel":
		p, changed, err := run.Cancel(s.doc, td.Input, s.now)
		if err != nil {
			return "", err
		}
		if !changed {
			return "nothing to do: already cancelled\n", nil
		}
		return s.commit(p), nil
	case "tick":
		s.now = s.now.Add(s.duration(td.CmdArgs[0].Key))
		return "it is " + s.at(s.now) + "\n", nil
	case "show":
		return s.show(td.CmdArgs[0].Key), nil
	}
	s.t.Fatalf("%s: unknown command %s", td.Pos, td.Cmd)
	return "", nil
}

func (s *stage) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// at tells an instant by its distance from the beginning.
func (s *stage) at(t time.Time) string {
	if t.Equal(epoch) {
		return "the beginning"
	}
	return "+" + t.Sub(epoch).String()
}

// commit is the backend: it refuses a proposal whose sequence has moved on, and
// checks what every proposal must be.
func (s *stage) commit(p run.Proposal) string {
	if s.doc != nil && p.Expected != s.doc.Seq {
		return fmt.Sprintf("stale: built on checkpoint %d, and the run is at %d\n", p.Expected, s.doc.Seq)
	}
	checkProposal(s.t, s.doc, p)
	s.doc = p.Document
	var b strings.Builder
	fmt.Fprintf(&b, "checkpoint %d, %s; %s\n", p.Document.Seq, p.Type, s.tellSchedule(p.Schedule))
	for _, e := range p.Events {
		if line := s.tellEvent(e); line != "" {
			b.WriteString("  " + line + "\n")
		}
	}
	b.WriteString(s.tellDocument(p.Document))
	return b.String()
}

func (s *stage) tellSchedule(c checkpoint.Schedule) string {
	switch c.Kind {
	case checkpoint.Retain:
		return "keep the claim"
	case checkpoint.ReleaseNow:
		return "due now"
	case checkpoint.ReleaseAt:
		return "due at " + s.at(c.At)
	case checkpoint.ReleaseExternal:
		return "due when answered"
	default:
		return "never due again"
	}
}

func (s *stage) tellEvent(e run.Event) string {
	attempt := ""
	if e.Attempt > 1 {
		attempt = fmt.Sprintf(" in attempt %d", e.Attempt)
	}
	switch e.Type {
	case run.EventNodeCompleted:
		return e.Node + " completed" + attempt
	case run.EventNodeSkipped:
		return e.Node + " skipped: " + e.Reason
	case run.EventNodeSnoozed:
		return e.Node + " sleeps until " + s.at(e.Wake)
	case run.EventNodeFailed:
		line := e.Node + " failed" + attempt + ", " + tellFailure(e.Failure)
		if !e.Wake.IsZero() {
			line += "; again at " + s.at(e.Wake)
		}
		return line
	case run.EventStateUpdated:
		return fmt.Sprintf("%s written, version %d", e.Field, e.Version)
	case run.EventEdgeFired:
		return "edge " + e.Edge + " fired"
	case run.EventInterruptRequested:
		line := fmt.Sprintf("%s asks %s", e.Node, e.Interrupt)
		if e.Data != nil {
			line += ": " + string(e.Data)
		}
		if !e.Wake.IsZero() {
			line += ", until " + s.at(e.Wake)
		}
		return line
	case run.EventInterruptResolved:
		if e.Reason != "" {
			return e.Interrupt + " answered by its " + e.Reason
		}
		return e.Interrupt + " answered"
	case run.EventInterruptClosed:
		return e.Interrupt + " closed"
	case run.EventRunInitialized:
		if !e.Wake.IsZero() {
			return "run started, to begin at " + s.at(e.Wake)
		}
		return "run started"
	case run.EventRunCompleted:
		return "run completed"
	case run.EventRunFailed:
		return "run failed"
	case run.EventRunCancelled:
		if e.Reason == "" {
			return "run cancelled"
		}
		return "run cancelled: " + e.Reason
	case run.EventCheckpointCommitted:
		return ""
	}
	s.t.Fatalf("no words for %s", e.Type)
	return ""
}

func tellFailure(f *run.Failure) string {
	message := f.Message
	if len(message) > 300 {
		message = fmt.Sprintf("%.60s... (%d bytes)", message, len(message))
	}
	return f.Code + ": " + message
}

// tellDocument says in a line or two where the run stands.
func (s *stage) tellDocument(d *run.Document) string {
	var parts []string
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	say("%s, step %d", d.Status, d.Step)
	var pending []string
	for _, node := range d.Pending {
		asking := false
		for _, i := range d.OpenInterrupts() {
			asking = asking || i.Node == node
		}
		if !asking {
			pending = append(pending, node)
		}
	}
	if len(pending) > 0 {
		say("to run: %s", strings.Join(pending, ", "))
	}
	for _, i := range d.OpenInterrupts() {
		say("%s waits for %s", i.Node, i.ID)
	}
	for _, t := range d.Tasks {
		for _, timer := range d.Timers {
			if timer.Kind == run.TimerTask && timer.Key == t.ID {
				say("%s parked until %s", t.Node, s.at(timer.At))
			}
		}
	}
	for _, w := range d.Writes {
		say("%s done, held back", w.Node)
	}
	for _, b := range d.Barriers {
		say("barrier %s has %s", b.Edge, strings.Join(b.Sources, ", "))
	}
	if d.Failure != nil {
		say("%s", tellFailure(d.Failure))
	}
	if d.Output != nil {
		say("output %s", d.Output)
	}
	return strings.Join(parts, "; ") + "\n"
}

func (s *stage) tellPlan() string {
	var b strings.Builder
	for _, a := range s.plan.Execute {
		fmt.Fprintf(&b, "execute %s as %s", a.Node.ID, a.Task)
		if a.Attempt > 1 {
			fmt.Fprintf(&b, ", attempt %d", a.Attempt)
		}
		if !a.PlannedAt.Equal(s.now) {
			fmt.Fprintf(&b, ", first planned at %s", s.at(a.PlannedAt))
		}
		for _, c := range a.Snapshot {
			fmt.Fprintf(&b, ", %s=%s", c.Name, c.Value)
		}
		for _, answer := range a.Answers {
			fmt.Fprintf(&b, ", told %s=%s", answer.Interrupt, answer.Value)
		}
		b.WriteString("\n")
	}
	switch {
	case s.plan.Finished:
		return "finished\n"
	case s.plan.Waiting:
		return "wait for an answer\n"
	case !s.plan.Wake.IsZero():
		return "nothing before " + s.at(s.plan.Wake) + "\n"
	case s.plan.Commit != nil:
		return "execute nothing, commit:\n" + s.commit(*s.plan.Commit)
	}
	return b.String()
}

func (s *stage) show(what string) string {
	var b strings.Builder
	switch what {
	case "state":
		for _, c := range append(append([]run.Channel(nil), s.doc.Input...), s.doc.State...) {
			fmt.Fprintf(&b, "%s = %s (version %d)\n", c.Name, c.Value, c.Version)
		}
	case "document":
		raw, err := run.Encode(s.doc)
		if err != nil {
			s.t.Fatal(err)
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, raw, "", "  "); err != nil {
			s.t.Fatal(err)
		}
		return indented.String() + "\n"
	case "counts":
		for _, c := range s.doc.Completed {
			fmt.Fprintf(&b, "%s completed %s\n", c.Node, times(c.Count))
		}
		for _, e := range s.doc.Edges {
			fmt.Fprintf(&b, "%s fired %s\n", e.Edge, times(e.Fired))
		}
	case "interrupts":
		for _, i := range s.doc.Interrupts {
			fmt.Fprintf(&b, "%s of %s: %s", i.ID, i.Node, i.Status)
			if i.Answer != nil {
				fmt.Fprintf(&b, ", answer %s", i.Answer)
			}
			b.WriteString("\n")
		}
	default:
		s.t.Fatalf("show what? %s", what)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// results reads lines such as
//
//	one: done total=42 note="x"
//	two: skip nothing to do
//	three: snooze 10s
//	four: ask id=approval field=ok deadline=1h default=false schema={"type":"boolean"} prompt="Go?"
//	five: retry the socket closed
//	six: retry not-before=1m the server is busy
//	seven: fail out of paper
func (s *stage) results(input string) ([]run.Result, error) {
	var out []run.Result
	for _, line := range strings.Split(strings.TrimSpace(input), "\n") {
		if line == "" {
			continue
		}
		node, rest, ok := strings.Cut(line, ": ")
		if !ok {
			return nil, fmt.Errorf("%q is not NODE: ANSWER", line)
		}
		verb, rest, _ := strings.Cut(rest, " ")
		args, text, err := arguments(rest)
		if err != nil {
			return nil, err
		}
		switch verb {
		case "done":
			out = append(out, run.Completed(node, args))
		case "skip":
			out = append(out, run.Skip(node, text))
		case "snooze":
			out = append(out, run.Snooze(node, s.now.Add(s.duration(text))))
		case "retry":
			var notBefore time.Time
			if v, ok := args["not-before"]; ok {
				notBefore = s.now.Add(s.duration(unquote(v)))
			}
			out = append(out, run.Retry(node, failure(text), notBefore))
		case "fail":
			out = append(out, run.Permanent(node, failure(text)))
		case "ask":
			q := run.Question{Prompt: args["prompt"], Schema: args["schema"], Default: args["default"]}
			if v, ok := args["id"]; ok {
				q.ID = unquote(v)
			}
			if v, ok := args["field"]; ok {
				q.Field = unquote(v)
			}
			if v, ok := args["deadline"]; ok {
				q.Deadline = s.now.Add(s.duration(unquote(v)))
			}
			out = append(out, run.Ask(node, q))
		default:
			return nil, errors.New("unknown answer " + verb)
		}
	}
	return out, nil
}

func failure(text string) run.Failure {
	return run.Failure{Code: run.CodeError, Message: text}
}

// arguments reads leading NAME=JSON pairs (a bare word is a string) and the text
// after them.
func arguments(rest string) (map[string]value.Value, string, error) {
	args := map[string]value.Value{}
	for {
		rest = strings.TrimLeft(rest, " ")
		name, after, ok := strings.Cut(rest, "=")
		if !ok || strings.Contains(name, " ") {
			return args, rest, nil
		}
		dec := json.NewDecoder(strings.NewReader(after))
		var raw json.RawMessage
		if err := dec.Decode(&raw); err == nil && strings.IndexByte(" ", (after + " ")[dec.InputOffset()]) == 0 {
			v, err := value.Canonical(raw)
			if err != nil {
				return nil, "", err
			}
			args[name], rest = v, after[dec.InputOffset():]
			continue
		}
		word, more, _ := strings.Cut(after, " ")
		v, err := value.Of(word)
		if err != nil {
			return nil, "", err
		}
		args[name], rest = v, more
	}
}

func unquote(v value.Value) string {
	var s string
	_ = json.Unmarshal(v, &s)
	return s
}
