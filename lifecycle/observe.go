package lifecycle

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"

	"github.com/belay-run/belay/run"
)

// The keys of log records.
const (
	keyRun     = "run"
	keyNode    = "node"
	keySeq     = "seq"
	keyAttempt = "attempt"
	keyGraph   = "graph"
	keyReason  = "reason"
	keyError   = "error"
	keyStack   = "stack"
)

// observe tells the hook of a commit.
func (e *Engine) observe(ctx context.Context, d *run.Document, events []run.Event) {
	if e.cfg.Observe != nil {
		e.guard(ctx, "Observe", d.ID, func() { e.cfg.Observe(d, events) })
	}
}

// answered calls the backend where nobody above would catch its panic, which must not end the
// host's process.
func answered(call func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("belay: the backend panicked: %s\n%s", panicText(r), debug.Stack())
		}
	}()
	return call()
}

// guard calls a hook of the host, whose panic must not harm the run.
func (e *Engine) guard(ctx context.Context, hook, runID string, call func()) {
	defer func() {
		if r := recover(); r != nil {
			e.log.LogAttrs(ctx, slog.LevelError, "belay: a hook panicked",
				slog.String("hook", hook), slog.String(keyRun, runID), slog.String(keyError, panicText(r)))
		}
	}()
	call()
}

// panicText is what a panic's value says when the runtime made it, and its type when somebody
// else did: that could show data.
func panicText(r any) string {
	if err, ok := r.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("a value of type %T", r)
}
