package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

// DrainOptions narrows a drain.
type DrainOptions struct {
	// Runs, when not empty, drives only these. It needs a backend with feature X4;
	// without it Drain answers backend.ErrUnsupported.
	Runs []string
	// Parks bounds how often in a row one run may be parked until an instant that has come
	// already, as by a node that always snoozes until its own beginning: without a bound that keeps
	// a drain from returning. Drain then answers ErrNoProgress. Defaults to 10000.
	Parks int
	// Cut, when not nil, cuts a shutdown short: when it ends as well, the contexts of running nodes end
	// at once, with ErrShutdown, and not only after Config.ShutdownTimeout.
	Cut context.Context
}

// defaultParks is the bound when none is given.
const defaultParks = 10_000

// ErrNoProgress: a run was due again at once, over and over, without getting on.
var ErrNoProgress = errors.New("belay: a run makes no progress")

// Drained counts what a drain did.
type Drained struct {
	Claims, Commits, Abandons, Poisons int
	// Next is the earliest instant, by the backend's clock, at which a run that this drain drove
	// and left unfinished is due again; zero: none.
	Next time.Time
}

// Drain drives everything that is due until nothing is: claims, executes, commits,
// refreshing held claims every TTL/3. Timers in the future are left alone; so is what it
// handed back for later, because it cannot run here or something failed before it began.
//
// The end of ctx is a shutdown, not a cancellation: nothing more is claimed, running nodes have
// Config.ShutdownTimeout to reach a commit, and the rest is released, due at once and without
// an attempt used up. Drain then returns what it did, with an error that wraps ctx's. It
// also returns when the backend cannot be claimed from, with that error, and with ErrNoProgress when
// a run only ever comes due again.
func (e *Engine) Drain(ctx context.Context, opts DrainOptions) (Drained, error) {
	if err := e.check(ctx); err != nil {
		return Drained{}, err
	}
	for _, id := range opts.Runs {
		if err := claim.CheckID("run id", id); err != nil {
			return Drained{}, err
		}
	}
	if len(opts.Runs) > 0 && !e.features.ClaimFilter {
		return Drained{}, fmt.Errorf("%w: draining given runs needs a claim filter (X4): drain everything instead", backend.ErrUnsupported)
	}
	switch {
	case opts.Parks < 0:
		return Drained{}, &backend.ArgumentError{Argument: "parks", Reason: "is negative: use 0 for the default"}
	case opts.Parks == 0:
		opts.Parks = defaultParks
	}
	s := newSession(ctx, e, claim.Filter{Runs: opts.Runs})
	s.mayPark = opts.Parks
	stop := context.AfterFunc(ctx, func() {
		s.stop()
		if opts.Cut != nil {
			context.AfterFunc(opts.Cut, s.cut)
		}
	})
	defer stop()
	s.mu.Lock()
	s.call(nil) // a node that never returns must not hold Drain up
	s.mu.Unlock()
	s.over.Wait()
	s.close()

	drained := s.summary()
	switch {
	case errors.Is(s.failure, ErrNoProgress):
		return drained, s.failure
	case s.failure != nil:
		return drained, fmt.Errorf("belay: draining stopped, the backend cannot be claimed from: %w", s.failure)
	case ctx.Err() != nil && !s.dry:
		return drained, fmt.Errorf("belay: draining was shut down: %w", context.Cause(ctx))
	default:
		return drained, nil
	}
}
