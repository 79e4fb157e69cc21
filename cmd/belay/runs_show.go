package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

func newRunsShow(d *desk) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show RUN",
		Short: "Show a run: its state, values, questions and result",
		Long: `Show a run as its last checkpoint has it. Long values are cut; with --json everything is whole, and the
document is as it is stored.`,
		Args: oneRun(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.useRun(cmd.Context(), args[0], func(_ *store, info backend.Info) error { return d.show(info) })
		},
	}
	return exits(cmd, exitInfrastructure)
}

func (d *desk) show(info backend.Info) error {
	t := d.terminal
	s := summarize(summaryOf(info), t.now())
	if t.json {
		document, err := run.Encode(info.Document)
		if err != nil {
			return err
		}
		return t.result(struct {
			summary
			Document json.RawMessage `json:"document"`
		}{s, document})
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	field := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	field("run", "%s", s.Run)
	if s.Tenant != "" {
		field("tenant", "%s", s.Tenant)
	}
	field("graph", "%s@%s", s.Graph.ID, s.Graph.Hash)
	field("state", "%s", s.State)
	field("checkpoint", "%d, %s", s.Seq, info.Type)
	field("superstep", "%d", info.Document.Step)
	field("started", "%s", clock(s.StartedAt))
	field("updated", "%s", clock(s.UpdatedAt))
	for _, at := range []struct{ name, instant string }{
		{"finished", clock(s.FinishedAt)},
		{"due", clock(s.Wake)},
		{"claimed", clock(s.ClaimedAt)},
	} {
		if at.instant != "" {
			field(at.name, "%s", at.instant)
		}
	}
	if s.Poison != nil {
		field("poisoned", "%s, %s", clock(s.Poison.At), s.Poison.Reason)
	}
	if s.Attempts > 0 || s.Abandons > 0 {
		field("since then", "launches %d, abandons %d", s.Attempts, s.Abandons)
	}
	showDocument(w, info.Document)
	return w.Flush()
}

func showDocument(w io.Writer, d *run.Document) {
	values := func(title string, channels []run.Channel) {
		if len(channels) == 0 {
			return
		}
		fmt.Fprintf(w, "\n%s\n", title)
		for _, c := range channels {
			fmt.Fprintf(w, "  %s\t%s\n", c.Name, cut(string(c.Value)))
		}
	}
	values("input", d.Input)
	values("fields", d.State)
	if len(d.Completed)+len(d.Writes)+len(d.Pending) > 0 {
		fmt.Fprintf(w, "\nnodes\n")
	}
	for _, n := range d.Completed {
		fmt.Fprintf(w, "  %s\tcompleted %s\n", n.Node, times(n.Count))
	}
	for _, n := range d.Writes {
		fmt.Fprintf(w, "  %s\tfinished in this superstep\n", n.Node)
	}
	parked := map[string]bool{}
	for _, k := range d.Tasks {
		parked[k.Node] = true
		fmt.Fprintf(w, "  %s\tparked: %s\n", k.Node, k.Reason)
	}
	for _, i := range d.OpenInterrupts() {
		parked[i.Node] = true
		fmt.Fprintf(w, "  %s\tasks: %s\n", i.Node, cut(string(i.Question)))
	}
	for _, n := range d.Pending {
		if !parked[n] {
			fmt.Fprintf(w, "  %s\tnext\n", n)
		}
	}
	switch {
	case d.Status == run.Done:
		fmt.Fprintf(w, "\noutput\t%s\n", cut(string(d.Output)))
	case d.Failure != nil:
		fmt.Fprintf(w, "\nfailure\t%s\n", cut(failureText(d.Failure)))
	case d.Reason != "":
		fmt.Fprintf(w, "\nreason\t%s\n", cut(d.Reason))
	}
}

func failureText(f *run.Failure) string {
	text := f.Code + ": " + f.Message
	if f.Node != "" {
		text = "node " + f.Node + ": " + text
	}
	return text
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// longest is how much of a value is shown to people, in bytes or a little less.
const longest = 200

// cut shortens a text at the end of a character.
func cut(text string) string {
	if len(text) <= longest {
		return text
	}
	end := 0
	for i := range text {
		if i > longest {
			break
		}
		end = i
	}
	return fmt.Sprintf("%s... (%d bytes)", text[:end], len(text))
}
