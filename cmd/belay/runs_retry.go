package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// retryOptions are the flags of belay runs retry, for many runs.
type retryOptions struct {
	reason string
	graph  string
	dryRun bool
}

// retried counts what became of poisoned runs.
type retried struct {
	freed  int
	others map[string]int // poisoned for other reasons, by reason
}

// retryAll frees every run that is poisoned for a reason. It goes through the running ones a page at a
// time; a run that is freed stays where it was in their order.
func (d *desk) retryAll(ctx context.Context, s *store, opts retryOptions) error {
	q := listOptions{graph: opts.graph, limit: backend.MaxLimit, statuses: []string{string(run.Running)}}
	query, err := q.query()
	if err != nil {
		return err
	}
	done := retried{others: map[string]int{}}
	for {
		page, err := s.ListRuns(ctx, d.scope(), query)
		if err == nil {
			err = done.free(ctx, s, page.Runs, opts)
		}
		if err != nil {
			return &exitError{exitCode(err), fmt.Errorf("stopped after %s: %w", done.says(opts.dryRun), err), "run it again for the others: " + d.retryCommand(opts)}
		}
		if !page.HasMore {
			return d.retried(done, opts)
		}
		query.Before = page.Next
	}
}

func (r *retried) free(ctx context.Context, s *store, runs []backend.Summary, opts retryOptions) error {
	for _, one := range runs {
		switch one.Poison.Reason {
		case "":
			continue
		case opts.reason:
		default:
			r.others[one.Poison.Reason]++
			continue
		}
		if !opts.dryRun {
			err := s.RetryPoisonedRun(ctx, backend.Of(one.Owner), one.Run, time.Time{})
			if errors.Is(err, backend.ErrInactiveRun) || errors.Is(err, backend.ErrNotFound) {
				continue // somebody was quicker, and cancelled it
			}
			if err != nil {
				return err
			}
		}
		r.freed++
	}
	return nil
}

func (r *retried) says(dryRun bool) string {
	if dryRun {
		return count(r.freed, "run") + " that would be freed"
	}
	return count(r.freed, "run") + " freed"
}

func (d *desk) retryCommand(opts retryOptions) string {
	words := []string{"runs", "retry", "--reason", opts.reason}
	if opts.graph != "" {
		words = append(words, "--graph", opts.graph)
	}
	if opts.dryRun {
		words = append(words, "--dry-run")
	}
	if d.narrowed {
		words = append(words, "--tenant="+d.tenant)
	}
	return d.place.again(words...)
}

func (d *desk) retried(done retried, opts retryOptions) error {
	t := d.terminal
	if t.json {
		return t.result(struct {
			Reason string         `json:"reason"`
			Runs   int            `json:"runs"`
			DryRun bool           `json:"dry_run"`
			Others map[string]int `json:"others,omitempty"` // poisoned for other reasons, by reason
		}{opts.reason, done.freed, opts.dryRun, done.others})
	}
	verb := "freed"
	if opts.dryRun {
		verb = "would free"
	}
	if _, err := fmt.Fprintf(t.out, "%s %s\n", verb, count(done.freed, "run")); err != nil {
		return err
	}
	var others []string
	for _, reason := range slices.Sorted(maps.Keys(done.others)) {
		others = append(others, fmt.Sprintf("%s for %s", count(done.others[reason], "run"), reason))
	}
	if len(others) > 0 {
		t.say("poisoned for other reasons: %s", strings.Join(others, ", "))
	}
	return nil
}
