package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// Client is what callers use: one owner's view of an engine. A run of another owner is
// backend.ErrNotFound. It is safe for concurrent use; get one from Engine.For, or use the
// Engine's own. The context of every operation ends its waiting, never a commit that was sent.
type Client struct {
	engine *Engine
	owner  backend.Owner
}

// Run is a run as callers see it: its last committed document and its operational state.
// The document must not be modified.
type Run struct {
	*run.Document
	Owner              backend.Owner
	Wake, ClaimedAt    time.Time // zero: none
	Attempts, Abandons int
	Poison             claim.Poison // zero: not poisoned
	// Existing: the start key was held by this run already, and nothing was started.
	Existing bool
}

// Fetch reads the run's last committed document. backend.ErrNotFound; *backend.CorruptError.
func (c *Client) Fetch(ctx context.Context, id string) (*run.Document, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	var d *run.Document
	err := c.engine.retry(ctx, func() (err error) {
		d, err = c.engine.store.FetchRun(ctx, backend.Of(c.owner), id)
		return err
	})
	return d, absent(id, err)
}

// Inspect reads the run with its operational state. Errors as Fetch.
func (c *Client) Inspect(ctx context.Context, id string) (*Run, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	var info backend.Info
	err := c.engine.retry(ctx, func() (err error) {
		info, err = c.engine.store.InspectRun(ctx, backend.Of(c.owner), id)
		return err
	})
	if err != nil {
		return nil, absent(id, err)
	}
	return runOf(info), nil
}

func runOf(info backend.Info) *Run {
	return &Run{
		Document: info.Document, Owner: info.Owner,
		Wake: info.Wake, ClaimedAt: info.ClaimedAt,
		Attempts: info.Attempts, Abandons: info.Abandons,
		Poison: info.Poison,
	}
}

// List reads a page of summaries, newest first. A corrupt document does not stop it.
func (c *Client) List(ctx context.Context, q backend.Query) (backend.Page, error) {
	if err := c.check(ctx); err != nil {
		return backend.Page{}, err
	}
	var page backend.Page
	err := c.engine.retry(ctx, func() (err error) {
		page, err = c.engine.store.ListRuns(ctx, backend.Of(c.owner), q)
		return err
	})
	return page, err
}

// Events reads a page of the run's history, ascending. Errors as Fetch.
func (c *Client) Events(ctx context.Context, id string, q backend.EventQuery) (backend.EventPage, error) {
	if err := c.check(ctx); err != nil {
		return backend.EventPage{}, err
	}
	var page backend.EventPage
	err := c.engine.retry(ctx, func() (err error) {
		page, err = c.engine.store.ListEvents(ctx, backend.Of(c.owner), id, q)
		return err
	})
	return page, absent(id, err)
}

// absent says of a run that is not found what to do.
func absent(id string, err error) error {
	if !errors.Is(err, backend.ErrNotFound) {
		return err
	}
	return fmt.Errorf("%w: run %s: check the id, and whose run it is", err, id)
}

// check refuses what no operation can work with, before anything else is looked at.
func (c *Client) check(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if c == nil || c.engine == nil {
		return &backend.ArgumentError{Argument: "client", Reason: "belongs to no engine: make it with New or Engine.For"}
	}
	return c.owner.Validate()
}
