package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

func newRunsResolve(d *desk) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resolve RUN NODE=JSON",
		Short: "Answer the question of a node",
		Long: `Answer the question that a node of the run asks. The node is named, or the interrupt by its id. The run
goes on wherever it is driven: by a service, or by belay run --resume.`,
		Example: `  belay runs resolve 01KE approve=true
  belay runs resolve 01KE 'choose="red"'`,
		Args: oneRun("NODE=JSON"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.signal(cmd.Context(), args[0], "answered", func(client *belay.Client, doc *run.Document) (*belay.Run, error) {
				open, text, err := question(doc, args[1])
				if err != nil {
					return nil, err
				}
				answer, err := value.Parse([]byte(text))
				if err != nil {
					return nil, usage(fmt.Errorf("the answer is not JSON: %w", err), `a text needs its quotes: '`+open.Node+`="text"'`)
				}
				return client.Resolve(cmd.Context(), doc.ID, open.ID, answer)
			})
		},
	}
	return exits(cmd, exitInfrastructure)
}

// question is the open interrupt that an argument answers, and the answer's text. Ids may have a
// "=" in them, so the name that fits longest counts.
func question(d *run.Document, argument string) (found run.Interrupt, text string, err error) {
	if !strings.Contains(argument, "=") {
		return found, "", usage(fmt.Errorf("%q is not NODE=JSON", argument), "as in: belay runs resolve RUN approve=true")
	}
	best := -1
	var asking []string
	for _, i := range d.OpenInterrupts() {
		asking = append(asking, i.Node)
		for _, name := range []string{i.Node, i.ID} {
			if rest, ok := strings.CutPrefix(argument, name+"="); ok && len(name) > best {
				best, found, text = len(name), i, rest
			}
		}
	}
	switch {
	case best >= 0:
		return found, text, nil
	case d.Status.Terminal():
		return found, "", fmt.Errorf("run %s: %w", d.ID, backend.ErrInactiveRun)
	}
	name, _, _ := strings.Cut(argument, "=")
	answered := slices.ContainsFunc(d.Interrupts, func(i run.Interrupt) bool {
		return i.Status == run.InterruptResolved && (i.Node == name || i.ID == name)
	})
	switch {
	case answered:
		return found, "", fmt.Errorf("run %s: %w", d.ID, run.ErrAlreadyResolved)
	case len(asking) == 0:
		return found, "", fmt.Errorf("run %s asks nothing: %w", d.ID, run.ErrNoInterrupt)
	}
	return found, "", usage(fmt.Errorf("node %s of run %s asks nothing", name, d.ID), "these do: "+strings.Join(asking, ", "))
}

func newRunsCancel(d *desk) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "cancel RUN",
		Short: "End a run for good",
		Long: `End a run for good, one that cannot be run any more too. A node that is running somewhere is ended
there with the next heartbeat (20 seconds or so), and what it returns is dropped. A run that was cancelled already is success.`,
		Args: oneRun(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.signal(cmd.Context(), args[0], "cancelled", func(client *belay.Client, doc *run.Document) (*belay.Run, error) {
				return client.Cancel(cmd.Context(), doc.ID, reason)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "cancelled from the command line", "why; it is kept with the run")
	return exits(cmd, exitInfrastructure)
}

func newRunsRetry(d *desk) *cobra.Command {
	var all retryOptions
	cmd := &cobra.Command{
		Use:   "retry {RUN | --reason REASON}",
		Short: "Free a poisoned run, or all that are poisoned for one reason",
		Long: `Free a run that is poisoned: it is due at once, and its launches and abandons are counted from zero. A run
that is not poisoned is left as it is.

With --reason all runs are freed that are poisoned for it: ` + claim.MaxAbandonsExceeded + `, once the release is out
that can run them, or ` + claim.MaxAttemptsExceeded + `, once what ended their processes is mended.`,
		Example: `  belay runs retry 01KE
  belay runs retry --reason ` + claim.MaxAbandonsExceeded + ` --dry-run`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch many := cmd.Flags().Changed("reason"); {
			case many && len(args) > 0:
				return usage(errors.New("either one run is freed, or all that --reason fits"), "leave one out")
			case many && all.reason == "":
				return usage(errors.New("--reason is empty"), "as in: belay runs retry --reason "+claim.MaxAbandonsExceeded)
			case many && !slices.Contains(poisonReasons, all.reason):
				return usage(fmt.Errorf("--reason %s is none for which a run is poisoned", all.reason), "use one of "+strings.Join(poisonReasons, ", "))
			case many:
				return nil
			case cmd.Flags().Changed("graph"), all.dryRun:
				return usage(errors.New("--graph and --dry-run are of --reason"), "as in: belay runs retry --reason "+claim.MaxAbandonsExceeded+" --dry-run")
			}
			return oneRun()(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if all.reason != "" {
				return d.use(cmd.Context(), func(s *store) error { return d.retryAll(cmd.Context(), s, all) })
			}
			return d.useRun(cmd.Context(), args[0], func(s *store, info backend.Info) error {
				said := "freed"
				if info.Poison.At.IsZero() && !info.Document.Status.Terminal() {
					said = "not poisoned, and left as it is"
				}
				return d.tell(s, info, said, func(client *belay.Client, doc *run.Document) (*belay.Run, error) {
					return client.RetryPoisoned(cmd.Context(), doc.ID)
				})
			})
		},
	}
	cmd.Flags().StringVar(&all.reason, "reason", "", "free all runs that are poisoned for this reason, as runs list --json tells it")
	cmd.Flags().StringVar(&all.graph, "graph", "", "with --reason: only runs of this graph: ID, or ID@HASH for one version")
	cmd.Flags().BoolVar(&all.dryRun, "dry-run", false, "with --reason: only count them")
	return exits(cmd, exitInfrastructure)
}

var poisonReasons = []string{claim.MaxAbandonsExceeded, claim.MaxAttemptsExceeded}

// signal finds the run and tells it something.
func (d *desk) signal(ctx context.Context, prefix, said string, send func(*belay.Client, *run.Document) (*belay.Run, error)) error {
	return d.useRun(ctx, prefix, func(s *store, info backend.Info) error { return d.tell(s, info, said, send) })
}

// tell sends a signal, and prints how the run stands then.
func (d *desk) tell(s *store, info backend.Info, said string, send func(*belay.Client, *run.Document) (*belay.Run, error)) error {
	t := d.terminal
	engine, err := newEngine(s, nil)
	if err != nil {
		return err
	}
	r, err := send(clientOf(engine, info.Owner), info.Document)
	if err != nil {
		return d.refused(info.Document.ID, err)
	}
	var next []string
	if !r.Status.Terminal() {
		next = append(next, d.place.again("run", "--resume", r.ID))
	}
	if t.json {
		return t.result(struct {
			Run    string     `json:"run"`
			Status run.Status `json:"status"`
			Next   []string   `json:"next,omitempty"`
		}{r.ID, r.Status, next})
	}
	t.say("run %s is %s", r.ID, said)
	for _, command := range next {
		t.say("unless a service drives it, go on with: %s", command)
	}
	return nil
}

// refused says what to do about a signal that the run does not take.
func (d *desk) refused(id string, err error) error {
	if coded := (*exitError)(nil); errors.As(err, &coded) {
		return err
	}
	if slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) }) {
		return usage(err, "see: "+d.place.again("runs", "explain", id))
	}
	return err
}
