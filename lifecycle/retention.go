package lifecycle

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/run"
)

// Retention says which finished runs go, with their events. Nothing is deleted without it.
type Retention struct {
	// After is how long a run is kept after it finished; above 0.
	After time.Duration
	// Statuses, when not empty, narrows to these terminal statuses.
	Statuses []run.Status
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
	if r.Batch < 1 || r.Batch > backend.MaxLimit {
		say("Retention.Batch is %d: use 1 to %d, or 0 for the default", r.Batch, backend.MaxLimit)
	}
	for _, status := range r.Statuses {
		if !slices.Contains([]run.Status{run.Done, run.Failed, run.Cancelled}, status) {
			say("Retention.Statuses holds %q: only finished runs are deleted", status)
		}
	}
}

// retain deletes what is old enough until ctx ends. Several engines may do so at once.
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
	now, err := e.present(ctx)
	var total backend.Pruned
	for more := err == nil; more; {
		var done backend.Pruned
		err = e.retry(ctx, func() (err error) {
			done, err = e.features.Retention.Prune(ctx, backend.PrunePolicy{
				Before: now.Add(-r.After), Statuses: r.Statuses, Limit: r.Batch, Graphs: r.Graphs,
			})
			return err
		})
		total.Runs += done.Runs
		total.Events += done.Events
		total.Graphs += done.Graphs
		more = err == nil && done.More && e.sleep(ctx, r.Pause)
	}
	level := slog.LevelDebug
	attrs := []slog.Attr{slog.Int("runs", total.Runs), slog.Int("events", total.Events), slog.Int("graphs", total.Graphs)}
	switch {
	case err != nil && ctx.Err() == nil:
		level = slog.LevelWarn
		attrs = append(attrs, slog.String(keyError, err.Error()))
	case total != backend.Pruned{}:
		level = slog.LevelInfo
	}
	e.log.LogAttrs(context.WithoutCancel(ctx), level, "belay: looked for finished runs to delete", attrs...)
}
