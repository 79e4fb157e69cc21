package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// MigrateOptions of one migration. The zero value keeps every name.
type MigrateOptions struct {
	// Mapping says what becomes of the names that the version changed.
	Mapping run.Mapping
	// DryRun stores nothing: the answer is the one the migration would give by now.
	DryRun bool
}

// Migrate moves a run to another stored version of its graph (an empty to.Hash is the latest):
// what it holds moves along, and it goes on from where it stands, under the version. A superstep
// in flight is planned again: its claim is revoked, and the contexts of its nodes end as after
// any lost claim. See run.Machine.Migrate for what moves, and for what refuses to.
//
// It answers *run.MigrationError (which lists every reason), run.ErrInactiveRun, and
// backend.ErrNotFound when the run or the version is not this owner's. A run that has the
// version already is success, and untouched. It returns the run as the migration left it.
//
// Whether any engine can run the version is not asked: one that cannot hands the run back.
func (c *Client) Migrate(ctx context.Context, id string, to graph.Ref, opts MigrateOptions) (*Run, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	if err := claim.CheckID("run id", id); err != nil {
		return nil, err
	}
	if err := claim.CheckID("graph id", to.ID); err != nil {
		return nil, err
	}
	now, err := c.engine.present(ctx)
	if err != nil {
		return nil, err
	}
	commit := c.newCommit()
	found, err := c.Inspect(ctx, id)
	if err != nil {
		return nil, err
	}
	_, target, err := c.published(ctx, to)
	if err != nil {
		return nil, err
	}
	for ref := found.Graph; ; {
		p, err := c.engine.program(ctx, c.owner, ref)
		if err != nil {
			return nil, fmt.Errorf("belay: graph %s of run %s: %w", ref.ID, id, err)
		}
		decide := func(d *run.Document) (*run.Proposal, error) {
			if d.Graph != ref {
				return nil, &graphMoved{to: d.Graph}
			}
			proposal, changed, err := target.machine.Migrate(d, run.Migration{
				From: p.machine.Graph(), Mapping: opts.Mapping, NotBefore: notBefore(found, d),
			}, now)
			if err != nil || !changed {
				return nil, err
			}
			return &proposal, nil
		}
		var r *Run
		if opts.DryRun {
			r, err = c.tryOut(ctx, id, decide)
		} else {
			r, err = c.mutate(ctx, id, commit, decide, ErrClaimLost)
		}
		var moved *graphMoved
		if !errors.As(err, &moved) {
			return r, err
		}
		ref = moved.to
	}
}

// notBefore is when a run that has not begun is due: the document does not say.
func notBefore(found *Run, d *run.Document) time.Time {
	if found.Seq != d.Seq || d.Seq != int64(len(d.Lineage))+1 {
		return time.Time{}
	}
	return found.Wake
}

// tryOut answers what a decision would make of the run.
func (c *Client) tryOut(ctx context.Context, id string, decide func(*run.Document) (*run.Proposal, error)) (*Run, error) {
	now, err := c.Inspect(ctx, id)
	if err != nil {
		return nil, err
	}
	proposal, err := decide(now.Document)
	if err != nil {
		return nil, err
	}
	if proposal == nil {
		return now, nil
	}
	return &Run{Document: proposal.Document, Owner: c.owner, Wake: wakeOf(*proposal)}, nil
}
