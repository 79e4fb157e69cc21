package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

func newRunsEvents(d *desk) *cobra.Command {
	q := backend.EventQuery{}
	cmd := &cobra.Command{
		Use:   "events RUN",
		Short: "List what happened in a run, in order",
		Args:  oneRun(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.useRun(cmd.Context(), args[0], func(s *store, info backend.Info) error {
				page, err := s.ListEvents(cmd.Context(), d.scope(), info.Document.ID, q)
				if err != nil {
					return err
				}
				return d.events(info.Document.ID, q, page)
			})
		},
	}
	cmd.Flags().Int64Var(&q.After, "after", 0, "only events after this sequence")
	cmd.Flags().IntVar(&q.Limit, "limit", 100, "how many events a page has, 1 to 1000")
	return exits(cmd, exitInfrastructure)
}

func (d *desk) events(id string, q backend.EventQuery, page backend.EventPage) error {
	t := d.terminal
	if t.json {
		out := struct {
			Run    string      `json:"run"`
			Events []run.Event `json:"events"`
			Oldest int64       `json:"oldest"`
			Latest int64       `json:"latest"`
			Next   int64       `json:"next,omitempty"` // for --after
		}{Run: id, Events: page.Events, Oldest: page.Oldest, Latest: page.Latest}
		if out.Events == nil {
			out.Events = []run.Event{}
		}
		if page.HasMore {
			out.Next = page.Next
		}
		return t.result(out)
	}
	if page.Oldest > q.After+1 {
		t.say("the events before %d have been deleted", page.Oldest)
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	for _, e := range page.Events {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", e.Seq, clock(e.At), e.Type, facts(e))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if page.HasMore {
		t.say("there are more: %s", d.place.again("runs", "events", id, "--limit", fmt.Sprint(q.Limit), "--after", fmt.Sprint(page.Next)))
	}
	return nil
}

// facts is what an event says besides its type.
func facts(e run.Event) string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	for _, name := range []string{e.Node, e.Edge, e.Field, e.Interrupt} {
		if name != "" {
			add("%s", name)
		}
	}
	if e.Attempt > 0 {
		add("attempt %d", e.Attempt)
	}
	if e.Version > 0 {
		add("version %d", e.Version)
	}
	if e.Failure != nil {
		add("%s: %s", e.Failure.Code, cut(e.Failure.Message))
	}
	if e.Reason != "" {
		add("%s", cut(e.Reason))
	}
	if e.Checkpoint != "" {
		add("%d, %s", e.Commit, e.Checkpoint)
	}
	if e.Data != nil {
		add("%s", cut(string(e.Data)))
	}
	if !e.Wake.IsZero() {
		add("until %s", clock(e.Wake))
	}
	return strings.Join(words, " ")
}
