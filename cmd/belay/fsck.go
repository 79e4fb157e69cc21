package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/belay-run/belay/backend"
)

// fsckOptions are the flags of belay fsck.
type fsckOptions struct {
	repair, dryRun bool
	policy         backend.AuditPolicy
}

func newFsckCommand(t *terminal) *cobra.Command {
	var opts fsckOptions
	cmd := &cobra.Command{
		Use:   "fsck",
		Short: "Check everything that is stored, and mend what can be mended",
		Long: `Check every invariant of what is stored, and list what is wrong with its severity and its remedy. Runs may
go on meanwhile. It exits 1 when anything worse than a warning is left.

--repair mends what can be mended without guessing; each repair looks again, in its own transaction, whether
it is still needed. With --dry-run it only tells what it would do.`,
		Example: `  belay fsck
  belay fsck --repair --dry-run`,
		Args: noArguments,
	}
	place := newLocation(t, cmd)
	flags := cmd.Flags()
	flags.BoolVar(&opts.repair, "repair", false, "mend what can be mended")
	flags.BoolVar(&opts.dryRun, "dry-run", false, "with --repair: change nothing")
	flags.StringArrayVar(&opts.policy.Runs, "run", nil, "check only this run, by its whole id; may be repeated")
	flags.DurationVar(&opts.policy.MaxClaimAge, "max-claim-age", 5*time.Minute, "from which age on a claim is suspicious; 0 for never")
	flags.IntVar(&opts.policy.MaxAttempts, "max-attempts", 0, "how many launches in a row engines allow; 0 does not judge")
	flags.IntVar(&opts.policy.MaxAbandons, "max-abandons", 0, "how many abandons in a row engines allow; 0 does not judge")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if opts.dryRun && !opts.repair {
			return usage(errors.New("--dry-run is of --repair"), "leave it out: without --repair nothing is changed")
		}
		s, err := place.open(cmd.Context(), opening{damaged: true})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		for _, id := range opts.policy.Runs {
			if _, err := s.InspectRun(cmd.Context(), backend.System(), id); errors.Is(err, backend.ErrNotFound) {
				return fmt.Errorf("run %s: %w", id, err)
			}
		}
		auditor := s.Features().Audit
		if auditor == nil {
			return usage(fmt.Errorf("%w: an audit", backend.ErrUnsupported), "name a database: --db sqlite:FILE, or --db postgres://HOST/DATABASE")
		}
		return fsck(cmd.Context(), t, auditor, opts)
	}
	return exits(cmd, exitFailed, exitInfrastructure)
}

// finding is one, with what was done about it, as --json prints it.
type finding struct {
	backend.Finding
	// Repaired is done, needed (by a dry run) or gone (it was not so any more).
	Repaired string `json:"repaired,omitempty"`
}

func fsck(ctx context.Context, t *terminal, auditor backend.Auditor, opts fsckOptions) error {
	found := []finding{}
	// Repairs write, so they wait until everything was looked at.
	for f, err := range auditor.Audit(ctx, opts.policy) {
		if err != nil {
			return t.unfinished(found, err)
		}
		found = append(found, finding{Finding: f})
	}
	errs, repaired := 0, 0
	for i := range found {
		f := &found[i]
		if opts.repair && f.Repair != "" {
			if err := mend(ctx, auditor, f, opts.dryRun); err != nil {
				return err
			}
		}
		switch {
		case f.Repaired == "done" || f.Repaired == "gone":
			repaired++
		case f.Severity != backend.SeverityWarning:
			errs++
		}
	}
	if err := t.printFindings(found, errs, repaired); err != nil {
		return err
	}
	if errs > 0 {
		return errReported{exitFailed}
	}
	return nil
}

// unfinished prints what was found before the check ended early. Nothing is repaired then.
func (t *terminal) unfinished(found []finding, err error) error {
	err = fmt.Errorf("the check ended early, after %s: %w", count(len(found), "finding"), err)
	if t.json {
		p := t.problem(err)
		p.Findings = found
		if err := t.result(p); err != nil {
			return err
		}
		return errReported{p.Exit}
	}
	for _, f := range found {
		t.printFinding(f)
	}
	return err
}

func mend(ctx context.Context, auditor backend.Auditor, f *finding, dryRun bool) error {
	needed, err := auditor.Repair(ctx, f.Finding, dryRun)
	switch {
	case err != nil:
		return fmt.Errorf("repairing %s: %w", f.Check, err)
	case !needed:
		f.Repaired = "gone"
	case dryRun:
		f.Repaired = "needed"
	default:
		f.Repaired = "done"
	}
	return nil
}

func (t *terminal) printFindings(found []finding, errs, repaired int) error {
	if t.json {
		return t.result(struct {
			Sound    bool      `json:"sound"`
			Findings []finding `json:"findings"`
		}{errs == 0, found})
	}
	for _, f := range found {
		t.printFinding(f)
	}
	verdict := fmt.Sprintf("%s, %s", count(errs, "error"), count(len(found)-errs-repaired, "warning"))
	if repaired > 0 {
		verdict += fmt.Sprintf(", %d repaired", repaired)
	}
	_, err := fmt.Fprintln(t.out, verdict)
	return err
}

func (t *terminal) printFinding(f finding) {
	where := ""
	switch {
	case f.Run != "":
		where = " run " + f.Run
	case f.Graph.ID != "":
		where = " graph " + f.Graph.ID
	}
	fmt.Fprintf(t.out, "%s %s%s: %s\n", t.paint(red, string(f.Severity)), f.Check, where, f.Detail)
	switch f.Repaired {
	case "done":
		fmt.Fprintf(t.out, "  repaired: %s\n", f.Repair)
	case "gone":
		fmt.Fprintf(t.out, "  it is not so any more\n")
	case "needed":
		fmt.Fprintf(t.out, "  would repair: %s\n", f.Repair)
	default:
		fmt.Fprintf(t.out, "  %s\n", f.Remedy)
	}
}
