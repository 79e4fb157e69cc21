package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// StartOptions of one start. The zero value is fine.
type StartOptions struct {
	// ID is the new run's id. Defaults to one of Config.IDs.
	ID string
	// Key is the start key: while its run is not terminal, and until Window has passed since
	// it was stored, another start with the key answers that run and stores nothing. Retention
	// that deletes the run frees its key, too: keep runs for longer than the longest Window.
	Key    string
	Window time.Duration
	// At is when the run becomes due. Zero or past: at once.
	At       time.Time
	Metadata map[string]string
}

// Publish validates and stores a graph; the same graph again is a no-op. Every problem is in
// the graph.Diagnostics it answers; warnings are logged.
func (c *Client) Publish(ctx context.Context, doc *graph.Document) (graph.Ref, error) {
	if err := c.check(ctx); err != nil {
		return graph.Ref{}, err
	}
	if doc == nil {
		return graph.Ref{}, &backend.ArgumentError{Argument: "graph", Reason: "is nil: read one with ReadGraph or build a graph.Document"}
	}
	e := c.engine
	compiled, err := graph.Publish(doc, e.cfg.Nodes)
	if err != nil {
		return graph.Ref{}, err
	}
	for _, w := range compiled.Warnings() {
		e.log.LogAttrs(ctx, slog.LevelWarn, "belay: graph warning",
			slog.String(keyGraph, compiled.Ref().ID), slog.String("code", w.Code), slog.String("path", w.Path), slog.String("message", w.Message))
	}
	err = e.retry(ctx, func() error { return e.store.SaveGraph(ctx, c.owner, compiled.Ref(), compiled.Bytes()) })
	if err != nil {
		return graph.Ref{}, err
	}
	return compiled.Ref(), nil
}

// Start starts a run of a published graph (an empty ref.Hash is the latest version). input is
// anything that encodes to a JSON object; nil is an empty one. It answers
// run.ErrInvalidInput when the input does not fit the graph, backend.ErrNotFound when the graph is
// not published, backend.ErrConflict when the id is taken. When its answer is lost
// (the context ends, say), starting again with the same ID or Key is safe.
//
// Starts without an ID and a Key that come faster than the backend stores them share calls of it (feature X2).
// Nobody waits for others to come, and nobody longer than ctx allows.
//
// While Run serves, has a free slot and found nothing else due, the run is stored as claimed by
// this engine and begins at once. A crash is then as one after any other claim.
func (c *Client) Start(ctx context.Context, ref graph.Ref, input any, opts StartOptions) (*Run, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	given, err := check(ref, input, opts)
	if err != nil {
		return nil, err
	}
	e := c.engine
	_, p, err := c.published(ctx, ref)
	if err != nil {
		return nil, err
	}
	now, err := e.present(ctx)
	if err != nil {
		return nil, err
	}
	since := e.clock.Now()
	init, told, err := c.initialize(ctx, p, given, now)
	if err != nil {
		return nil, err
	}
	slot := e.reserve(c.owner, p, init.Proposal)
	defer slot.giveUp()
	if slot != nil {
		init.Schedule = checkpoint.Schedule{Kind: checkpoint.Retain}
		init.Claim = &backend.StartClaim{TTL: e.cfg.TTL}
	}
	var sent time.Time
	var inserted backend.Inserted
	alone := opts.ID != "" || opts.Key != "" || len(given.input) > largeStart
	err = e.retry(ctx, func() (err error) {
		sent = e.clock.Now()
		inserted, err = e.starter.insert(ctx, c.owner, init, alone)
		alone = true
		return err
	})
	c.tellStarted(told, init.Document, inserted, err)
	if err != nil {
		return nil, err
	}
	r, err := c.started(ctx, e.store, init, inserted)
	if err != nil || inserted.Existing {
		return r, err
	}
	e.observe(told, init.Document, init.Events)
	e.tellCommitted(told, c.owner, &init.Proposal, false, e.clock.Now().Sub(since))
	if inserted.Lease != nil {
		r.ClaimedAt, r.Attempts = now, 1
		slot.use(*inserted.Lease, init.Document, instants{named: now, since: since}, sent)
	} else {
		e.becomesDue(init.Proposal)
	}
	return r, nil
}

// given is what a caller wants to start, checked as far as that goes without the graph.
type given struct {
	input value.Value
	StartOptions
}

func check(ref graph.Ref, input any, opts StartOptions) (given, error) {
	if err := opts.validate(); err != nil {
		return given{}, err
	}
	if err := claim.CheckID("graph id", ref.ID); err != nil {
		return given{}, err
	}
	in, err := inputObject(input)
	return given{in, opts}, err
}

// initialize makes the first commit of a run. Whoever calls it tells observers what became of it,
// unless it answers an error.
func (c *Client) initialize(ctx context.Context, p *program, g given, now time.Time) (backend.Initialization, context.Context, error) {
	in := run.Initial{Run: g.ID, Input: g.input, StartAt: g.At, Metadata: g.Metadata}
	if in.Run == "" {
		in.Run = c.engine.ids.RunID()
	}
	seen := ObservedRun{Run: in.Run, Graph: p.machine.Graph().Ref(), Owner: c.owner, Metadata: g.Metadata}
	told, more := c.engine.tellStarting(ctx, ObservedStart{ObservedRun: seen})
	proposal, err := p.machine.Init(in, now)
	if err == nil && len(more) > 0 {
		maps.Copy(more, g.Metadata)
		in.Metadata = more
		if carried, err := p.machine.Init(in, now); err == nil {
			proposal = carried
		} else {
			c.engine.log.LogAttrs(ctx, slog.LevelWarn, "belay: what observers add to the metadata of a run does not fit, it is left out",
				slog.String(keyRun, in.Run), slog.String(keyError, err.Error()))
		}
	}
	if err != nil {
		c.engine.tellStarted(told, ObservedStart{ObservedRun: seen, Err: err})
		return backend.Initialization{}, told, err
	}
	return backend.Initialization{Proposal: proposal, CheckpointID: c.newCommit(), Key: g.Key, Window: g.Window}, told, nil
}

// tellStarted tells observers what became of a start.
func (c *Client) tellStarted(told context.Context, d *run.Document, inserted backend.Inserted, err error) {
	s := ObservedStart{ObservedRun: observed(c.owner, d), Existing: inserted.Existing, Err: err}
	if inserted.Existing {
		s.Run, s.Seq, s.Metadata = inserted.Run, 0, nil
	}
	c.engine.tellStarted(told, s)
}

// started is the run of an insert, or the one that holds its start key.
func (c *Client) started(ctx context.Context, from backend.Starter, init backend.Initialization, inserted backend.Inserted) (*Run, error) {
	if !inserted.Existing {
		return &Run{Document: init.Document, Owner: c.owner, Wake: wakeOf(init.Proposal)}, nil
	}
	info, err := from.InspectRun(ctx, backend.Of(c.owner), inserted.Run)
	if err != nil {
		return nil, fmt.Errorf("belay: the start key is held by run %s, which cannot be read: %w", inserted.Run, err)
	}
	first := runOf(info)
	first.Existing = true
	return first, nil
}

// published finds the version that a start names, and its program.
func (c *Client) published(ctx context.Context, ref graph.Ref) (graph.Ref, *program, error) {
	e := c.engine
	if ref.Hash == "" {
		err := e.retry(ctx, func() error {
			latest, err := e.store.LatestGraph(ctx, c.owner, ref.ID)
			ref.Hash = latest.Ref.Hash
			return err
		})
		if err != nil {
			return ref, nil, unpublished(ref, err)
		}
	}
	p, err := e.program(ctx, c.owner, ref)
	if err != nil {
		return ref, nil, unpublished(ref, err)
	}
	return ref, p, nil
}

func unpublished(ref graph.Ref, err error) error {
	if errors.Is(err, backend.ErrNotFound) {
		return fmt.Errorf("belay: graph %s: %w: publish it for this owner first", ref.ID, err)
	}
	return fmt.Errorf("belay: graph %s: %w", ref.ID, err)
}

// inputObject encodes an input. What encodes to null, a nil map say, is the empty object.
func inputObject(input any) (value.Value, error) {
	if input == nil {
		return nil, nil
	}
	in, err := value.Of(input)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", run.ErrInvalidInput, err)
	}
	if value.Equal(in, value.Null()) {
		return nil, nil
	}
	return in, nil
}

func (o StartOptions) validate() error {
	refuse := func(argument, reason string) error {
		return &backend.ArgumentError{Argument: argument, Reason: reason}
	}
	if o.ID != "" {
		if err := claim.CheckID("run id", o.ID); err != nil {
			return err
		}
	}
	if o.Key != "" {
		if err := claim.CheckID("start key", o.Key); err != nil {
			return err
		}
	}
	switch {
	case o.Window < 0:
		return refuse("window", "is negative: use 0 to hold the start key only while its run is not finished")
	case o.Window > 0 && o.Key == "":
		return refuse("window", "has no start key to hold: set Key, or leave Window out")
	}
	return nil
}

// wakeOf is when a proposal leaves the run due; zero: not by itself.
func wakeOf(p run.Proposal) time.Time {
	switch p.Schedule.Kind {
	case checkpoint.ReleaseNow:
		return p.Now
	case checkpoint.ReleaseAt:
		return p.Schedule.At
	default:
		return time.Time{}
	}
}
