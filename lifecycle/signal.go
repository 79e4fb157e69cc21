package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// Resolve answers an interrupt; answer is anything that encodes to JSON. It is never lost to a
// busy run: a superstep in flight is planned again, with the answer. It answers
// run.ErrInactiveRun, run.ErrNoInterrupt, run.ErrAlreadyResolved, run.ErrInvalidAnswer,
// in this order, and returns the run as the answer's commit left it.
func (c *Client) Resolve(ctx context.Context, id, interrupt string, answer any) (*Run, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	if err := claim.CheckID("run id", id); err != nil {
		return nil, err
	}
	if err := claim.CheckID("interrupt id", interrupt); err != nil {
		return nil, err
	}
	given, err := value.Of(answer)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", run.ErrInvalidAnswer, err)
	}
	now, err := c.engine.present(ctx)
	if err != nil {
		return nil, err
	}
	commit := c.newCommit()
	current, err := c.Fetch(ctx, id)
	if err != nil {
		return nil, err
	}
	for ref := current.Graph; ; {
		p, err := c.engine.program(ctx, c.owner, ref)
		if err != nil {
			return nil, fmt.Errorf("belay: graph %s of run %s: %w", ref.ID, id, err)
		}
		r, err := c.mutate(ctx, id, commit, func(d *run.Document) (*run.Proposal, error) {
			if d.Graph != ref {
				return nil, &graphMoved{to: d.Graph}
			}
			proposal, err := p.machine.Resolve(d, interrupt, given, now)
			if err != nil {
				return nil, err
			}
			return &proposal, nil
		}, ErrClaimLost)
		var moved *graphMoved
		if !errors.As(err, &moved) {
			return r, err
		}
		ref = moved.to
	}
}

// graphMoved says that the run was migrated to another graph version since it was read.
type graphMoved struct{ to graph.Ref }

func (*graphMoved) Error() string { return "belay: the run was migrated meanwhile" }

// Cancel ends a run for good, also one that cannot be run any more: its graph is not needed. The
// reason may have run.MaxReason bytes, and is kept with the run. A run that is cancelled already is success; any other finished run is run.ErrInactiveRun. The
// context of a node in flight ends within one heartbeat, at once when this engine drives it. It
// returns the run as the cancel left it.
func (c *Client) Cancel(ctx context.Context, id, reason string) (*Run, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	if err := claim.CheckID("run id", id); err != nil {
		return nil, err
	}
	now, err := c.engine.present(ctx)
	if err != nil {
		return nil, err
	}
	return c.mutate(ctx, id, c.newCommit(), func(d *run.Document) (*run.Proposal, error) {
		proposal, changed, err := run.Cancel(d, reason, now)
		if err != nil || !changed {
			return nil, err
		}
		return &proposal, nil
	}, ErrRunCancelled)
}

// RetryPoisoned frees a poisoned run: it is due at once, its counters are zero. A healthy run
// is success and untouched; a finished one is run.ErrInactiveRun.
func (c *Client) RetryPoisoned(ctx context.Context, id string) (*Run, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	e := c.engine
	err := e.retry(ctx, func() error {
		return e.store.RetryPoisonedRun(ctx, backend.Of(c.owner), id, time.Time{})
	})
	if err != nil {
		if errors.Is(err, run.ErrInactiveRun) {
			err = fmt.Errorf("%w: run %s is not poisoned, it has come to its end: look at it with Inspect, and start a new run to do its work again", err, id)
		}
		return nil, absent(id, err)
	}
	e.Wake()
	return c.Inspect(ctx, id)
}

func (c *Client) newCommit() checkpoint.ID { return checkpoint.ID(c.engine.ids.CheckpointID()) }

// mutate commits what decide proposes, under one commit id however often it is sent, and ends
// with cause whatever this engine has in flight for the run.
func (c *Client) mutate(ctx context.Context, id string, commit checkpoint.ID, decide func(*run.Document) (*run.Proposal, error), cause error) (*Run, error) {
	e := c.engine
	began := e.clock.Now()
	mark := e.watch.mark()
	var m backend.Mutated
	var decided, sent *run.Proposal
	var refusal error
	err := e.retry(ctx, func() (err error) {
		if decided != nil {
			sent = decided
		}
		decided, refusal = nil, nil
		m, err = e.store.MutateRun(ctx, backend.Of(c.owner), id, commit, func(d *run.Document) (backend.Mutation, error) {
			decided, refusal = decide(d)
			return backend.Mutation{Proposal: decided}, refusal
		})
		if refusal != nil {
			return nil // an answer, whatever the backend's classifier would make of it
		}
		return err
	})
	if refusal != nil {
		return nil, refusal
	}
	if err != nil {
		return nil, absent(id, err)
	}
	if m.Replayed {
		decided = sent // its answer was lost
	}
	r := &Run{Document: m.Document, Owner: c.owner}
	if !m.Committed && !m.Replayed {
		return r, nil
	}
	if decided != nil {
		r.Wake = wakeOf(*decided)
		e.watch.committed(c.owner, decided, mark)
	}
	e.beat.end(id, m.Document.Seq, cause)
	if decided != nil {
		e.observe(ctx, decided.Document, decided.Events)
		e.tellCommitted(ctx, c.owner, decided, false, e.clock.Now().Sub(began))
		e.becomesDue(*decided)
	}
	return r, nil
}
