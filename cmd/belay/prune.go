package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// terminalStatuses are those of finished runs.
var terminalStatuses = []run.Status{run.Done, run.Failed, run.Cancelled}

func newPruneCommand(t *terminal) *cobra.Command {
	var older string
	var statuses []string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "prune --older-than D",
		Short: "Delete finished runs that are old enough",
		Long: `Delete runs that finished before a while ago, with their events and start keys, and then the graph versions
published before that which no run uses any more; the newest version of each graph stays. Runs that have not
finished stay.
It works in small steps: interrupted, it has deleted some, and can be run again.`,
		Example: `  belay prune --older-than 30d --dry-run
  belay prune --older-than 12h --status done`,
		Args: noArguments,
	}
	place := newLocation(t, cmd)
	flags := cmd.Flags()
	flags.StringVar(&older, "older-than", "", "how long ago a run has finished: 30d, 12h, 90m")
	statusFlag(cmd, &statuses, terminalStatuses)
	flags.BoolVar(&dryRun, "dry-run", false, "only count what would go")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		age, err := parseAge(older)
		if err != nil {
			return err
		}
		narrowed, err := parseStatuses(statuses, terminalStatuses)
		if err != nil {
			return err
		}
		s, err := place.existing(cmd.Context())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		retention := s.Features().Retention
		if retention == nil {
			return fmt.Errorf("%w: deleting runs", backend.ErrUnsupported)
		}
		now, err := s.now(cmd.Context())
		if err != nil {
			return err
		}
		policy := backend.PrunePolicy{
			Before: now.Add(-age), Statuses: narrowed, Limit: backend.MaxLimit, Graphs: true, DryRun: dryRun,
		}
		var total backend.Pruned
		for more := true; more; more = total.More && !dryRun { // a dry run would count the same again
			done, err := retention.Prune(cmd.Context(), policy)
			total = backend.Pruned{Runs: total.Runs + done.Runs, Events: total.Events + done.Events, Graphs: total.Graphs + done.Graphs, More: done.More}
			if err != nil {
				return fmt.Errorf("stopped after %s: %w", pruned(total), err)
			}
		}
		if t.json {
			return t.result(struct {
				Runs   int  `json:"runs"`
				Events int  `json:"events"`
				Graphs int  `json:"graphs"`
				DryRun bool `json:"dry_run"`
				More   bool `json:"more"`
			}{total.Runs, total.Events, total.Graphs, dryRun, total.More})
		}
		verb := "deleted"
		if dryRun {
			verb = "would delete"
		}
		if total.More {
			verb += " at least"
		}
		_, err = fmt.Fprintf(t.out, "%s %s\n", verb, pruned(total))
		return err
	}
	return exits(cmd, exitInfrastructure)
}

func pruned(p backend.Pruned) string {
	return fmt.Sprintf("%s, %s, %s", count(p.Runs, "run"), count(p.Events, "event"), count(p.Graphs, "graph version"))
}

// parseAge reads a duration, of days too.
func parseAge(text string) (age time.Duration, err error) {
	const hint = "as in: --older-than 30d, 12h or 90m"
	if text == "" {
		return 0, usage(errors.New("--older-than is needed: nothing is deleted without it"), hint)
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, bad := strconv.ParseUint(days, 10, 16)
		age, err = time.Duration(n)*24*time.Hour, bad
	} else {
		age, err = time.ParseDuration(text)
	}
	if err != nil || age < 0 {
		return 0, usage(fmt.Errorf("--older-than %q is not a duration", text), hint)
	}
	return age, nil
}
