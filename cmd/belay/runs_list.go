package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// listOptions are the flags of belay runs list.
type listOptions struct {
	graph    string
	statuses []string
	limit    int
	before   string
}

func newRunsList(d *desk) *cobra.Command {
	var opts listOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runs, newest first",
		Long: `List runs, newest first, a page at a time; when there are more, the command for the next page is told.
The state says more than the status of a running run: ready, scheduled, claimed, expired (its claim is), poisoned.`,
		Example: `  belay runs list --status waiting --status failed
  belay runs list --graph release --limit 5 --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := opts.query()
			if err != nil {
				return err
			}
			return d.use(cmd.Context(), func(s *store) error {
				page, err := s.ListRuns(cmd.Context(), d.scope(), q)
				if err != nil {
					return err
				}
				now, err := s.now(cmd.Context())
				if err != nil {
					return err
				}
				return d.list(page, now, opts)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.graph, "graph", "", "only runs of this graph: ID, or ID@HASH for one version")
	statusFlag(cmd, &opts.statuses, run.Statuses()[1:])
	flags.IntVar(&opts.limit, "limit", 20, "how many runs a page has, 1 to 1000")
	flags.StringVar(&opts.before, "before", "", "only runs that started before: an instant, or INSTANT,RUN as the page before tells it")
	return exits(cmd, exitInfrastructure)
}

// statusFlag adds --status, which may be given several times, or with commas.
func statusFlag(cmd *cobra.Command, to *[]string, known []run.Status) {
	names := make([]string, len(known))
	for i, s := range known {
		names[i] = string(s)
	}
	cmd.Flags().StringSliceVar(to, "status", nil, "only runs with this status, of "+strings.Join(names, ", ")+"; may be repeated")
}

func parseStatuses(names []string, known []run.Status) ([]run.Status, error) {
	var statuses []run.Status
	for _, name := range names {
		if !slices.Contains(known, run.Status(name)) {
			return nil, usage(fmt.Errorf("--status %s is not known", name), fmt.Sprintf("use one of %v", known))
		}
		statuses = append(statuses, run.Status(name))
	}
	return statuses, nil
}

func (o listOptions) query() (q backend.Query, err error) {
	q = backend.Query{Limit: o.limit}
	q.GraphID, q.GraphHash, _ = strings.Cut(o.graph, "@")
	if q.Statuses, err = parseStatuses(o.statuses, run.Statuses()[1:]); err != nil {
		return q, err
	}
	if err := q.Before.UnmarshalText([]byte(o.before)); err != nil {
		return q, usage(fmt.Errorf("--before %q does not begin with an instant", o.before), "as in: --before 2026-01-31T12:00:00Z")
	}
	return q, nil
}

func formatCursor(c backend.Cursor) string {
	text, _ := c.MarshalText() // never fails
	return string(text)
}

// list prints a page.
func (d *desk) list(page backend.Page, now time.Time, opts listOptions) error {
	t := d.terminal
	if t.json {
		out := struct {
			Runs []summary `json:"runs"`
			Next string    `json:"next,omitempty"` // for --before
		}{Runs: []summary{}}
		for _, r := range page.Runs {
			out.Runs = append(out.Runs, summarize(r, now))
		}
		if page.HasMore {
			out.Next = formatCursor(page.Next)
		}
		return t.result(out)
	}
	if len(page.Runs) == 0 {
		t.say("no runs")
		return nil
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tGRAPH\tSTATE\tCHECKPOINT\tSTARTED\tUPDATED\tTENANT")
	for _, r := range page.Runs {
		s := summarize(r, now)
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", s.Run, s.Graph.ID, s.State, s.Seq, clock(s.StartedAt), clock(s.UpdatedAt), s.Tenant)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if page.HasMore {
		t.say("there are more: %s", d.place.again(opts.next(d, page.Next)...))
	}
	return nil
}

// next is the command line of the next page.
func (o listOptions) next(d *desk, cursor backend.Cursor) []string {
	words := []string{"runs", "list", "--limit", fmt.Sprint(o.limit), "--before", formatCursor(cursor)}
	if o.graph != "" {
		words = append(words, "--graph", o.graph)
	}
	for _, s := range o.statuses {
		words = append(words, "--status", s)
	}
	if d.narrowed {
		words = append(words, "--tenant="+d.tenant)
	}
	return words
}

// clock is an instant as people read it.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
