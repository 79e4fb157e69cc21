package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// Retention says which finished runs go, with their events. Nothing is deleted without it.
type Retention struct {
	// After is how long a run is kept after it finished; above 0. Its start key goes with it, so
	// this is longer than the longest StartOptions.Window.
	After time.Duration
	// Statuses, when not empty, narrows to these terminal statuses.
	Statuses []run.Status
	// Keep is how many finished runs stay at least, whatever their age: those that began last, over
	// all owners. At most backend.MaxLimit. Defaults to none.
	Keep int
	// DryRun deletes nothing: it logs what would go first, Batch runs at most.
	DryRun bool
	// Graphs also deletes graph versions that were published as long ago and that no run uses; the newest
	// version of each graph is kept.
	Graphs bool
	// Every is how often it is looked for such runs; up to a quarter is added, so that engines
	// do not look together. Defaults to 1h.
	Every time.Duration
	// Batch is how many runs go at once, and Pause how long the backend has for others
	// between two batches. They default to 100 and 100ms.
	Batch int
	Pause time.Duration
}

var terminal = []run.Status{run.Done, run.Failed, run.Cancelled}

func (r *Retention) validate(features backend.Features, say func(format string, args ...any)) {
	if features.Retention == nil {
		say("Retention needs a backend that deletes finished runs (feature X7): leave it out, or use another backend")
	}
	if r.After <= 0 {
		say("Retention.After is %v: say how long finished runs are kept", r.After)
	}
	if r.Every < 0 || r.Pause < 0 {
		say("Retention.Every is %v and Pause %v: use positive durations, or 0 for the defaults", r.Every, r.Pause)
	}
	if r.Keep < 0 || r.Keep > backend.MaxLimit {
		say("Retention.Keep is %d: use 0 to %d", r.Keep, backend.MaxLimit)
	}
	if r.Batch < 1 || r.Batch > backend.MaxLimit {
		say("Retention.Batch is %d: use 1 to %d, or 0 for the default", r.Batch, backend.MaxLimit)
	}
	for _, status := range r.Statuses {
		if !slices.Contains(terminal, status) {
			say("Retention.Statuses holds %q: only finished runs are deleted", status)
		}
	}
}

// retain deletes what is old enough until ctx ends. Of several engines that do so at the same time
// one goes on, where the backend keeps the others out with ErrBusy, and the others look again later.
func (e *Engine) retain(ctx context.Context, r Retention) {
	seed := e.ids.CheckpointID()
	for n := 0; ; n++ {
		if !e.sleep(ctx, r.Every+jitter(r.Every/2, seed+strconv.Itoa(n))) {
			return
		}
		e.prune(ctx, r)
	}
}

func (e *Engine) prune(ctx context.Context, r Retention) {
	total, err := e.pruneAll(ctx, r)
	level, message := slog.LevelDebug, "belay: looked for finished runs to delete"
	attrs := []slog.Attr{slog.Int("runs", total.Runs), slog.Int("events", total.Events), slog.Int("graphs", total.Graphs)}
	if r.DryRun {
		message = "belay: looked for finished runs that would be deleted, and deleted none"
		attrs = append(attrs, slog.Bool("more", total.More))
	}
	switch {
	case errors.Is(err, backend.ErrBusy):
		message = "belay: another engine deletes finished runs just now"
	case err != nil && ctx.Err() == nil:
		level = slog.LevelWarn
		attrs = append(attrs, slog.String(keyError, err.Error()))
	case total.Runs > 0 || total.Graphs > 0:
		level = slog.LevelInfo
	}
	e.log.LogAttrs(context.WithoutCancel(ctx), level, message, attrs...)
}

// pruneAll deletes batch by batch: finished runs, each after its events, and when none is left that
// may go, graph versions that nothing uses.
func (e *Engine) pruneAll(ctx context.Context, r Retention) (total backend.Pruned, err error) {
	before, err := e.pruneBefore(ctx, r)
	if err != nil || before.IsZero() {
		return total, err
	}
	policy := backend.PrunePolicy{Before: before, Statuses: r.Statuses, Limit: r.Batch, Graphs: r.Graphs && r.DryRun, DryRun: r.DryRun}
	for {
		done, err := e.pruneOnce(ctx, policy)
		total.Runs += done.Runs
		total.Events += done.Events
		total.Graphs += done.Graphs
		total.More = done.More
		switch {
		case err != nil || r.DryRun:
			return total, err
		case done.More && !e.sleep(ctx, r.Pause):
			return total, nil
		case done.More:
		case r.Graphs && !policy.Graphs:
			policy.Graphs = true
		default:
			return total, nil
		}
	}
}

// pruneBefore is the instant before which a run must have finished to go; zero: none may.
func (e *Engine) pruneBefore(ctx context.Context, r Retention) (before time.Time, err error) {
	err = answered(func() error {
		now, err := e.present(ctx)
		before = now.Add(-r.After)
		if err != nil || r.Keep == 0 {
			return err
		}
		statuses := r.Statuses
		if len(statuses) == 0 {
			statuses = terminal
		}
		var page backend.Page
		err = e.retry(ctx, func() (err error) {
			page, err = e.store.ListRuns(ctx, backend.System(), backend.Query{Statuses: statuses, Limit: r.Keep})
			return err
		})
		for _, kept := range page.Runs {
			if kept.FinishedAt.Before(before) {
				before = kept.FinishedAt
			}
		}
		if !page.HasMore {
			before = time.Time{} // there are no more than are to be kept
		}
		return err
	})
	return before, err
}

// pruneOnce does not insist when another engine is at it.
func (e *Engine) pruneOnce(ctx context.Context, policy backend.PrunePolicy) (done backend.Pruned, err error) {
	busy := false
	err = answered(func() error {
		return e.retry(ctx, func() (err error) {
			done, err = e.features.Retention.Prune(ctx, policy)
			if busy = errors.Is(err, backend.ErrBusy); busy {
				return nil
			}
			return err
		})
	})
	if busy {
		err = backend.ErrBusy
	}
	return done, err
}
