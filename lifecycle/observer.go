package lifecycle

import (
	"context"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// Observer is told what an engine does, each after it is done. Every function may be nil. They are
// called on the goroutines that do the work, by several at once, so they must be quick and
// safe for concurrent use. None can veto, change or delay a transition beyond the time it takes: a
// panic is logged, and what it is given it must not modify. They see no state, no input, no output
// and no token; the metadata of a run is whatever its host gave at the start.
//
// A function that returns a context adds values to the one that the later calls, and the nodes, get:
// of Claimed for all that happens under the claim, of Attempting for that attempt. Only the
// values count; a deadline or a cancel of the returned context has no effect. nil adds none.
type Observer struct {
	// Starting is told before a run is stored, by Start, StartIn and StartMany, under the
	// caller's context. The entries it returns are added to the run's metadata, unless the caller gave
	// them, and as long as they fit the bounds of metadata. Seq is 0.
	Starting func(ctx context.Context, s ObservedStart) (context.Context, map[string]string)
	// Started is told once for each Starting, with its context: the run was stored, was there
	// already, or was refused. For StartIn it is told before the host commits.
	Started func(ctx context.Context, s ObservedStart)
	// Committed is told of each commit: of a driven run, under the context of its claim; of a
	// start (StartIn aside) and of a signal under the caller's.
	Committed func(ctx context.Context, c ObservedCommit)
	// Grouped is told of each call of the backend that carried commits of driven runs.
	Grouped func(ctx context.Context, g ObservedGroup)

	// Claimed is told of each claim once its document is known, or cannot be read.
	Claimed func(ctx context.Context, c ObservedClaim) context.Context
	// Ended is told once for each Claimed, when this engine does not hold the claim any more.
	Ended func(ctx context.Context, e ObservedEnd)
	// FenceLost is told when a claim ends because it was no longer this engine's, before Ended.
	FenceLost func(ctx context.Context, f ObservedLoss)
	// Abandoned is told of each run that was handed back because it cannot begin here.
	Abandoned func(ctx context.Context, a Abandon)
	// Poisoned is told of each run that this engine found due, or handed back, once too often.
	Poisoned func(ctx context.Context, p ObservedPoison)

	// Attempting is told before a node is called, when its turn has come.
	Attempting func(ctx context.Context, a ObservedAttempt) context.Context
	// Attempted is told once for each Attempting, before its result is settled.
	Attempted func(ctx context.Context, a ObservedAttempt)
}

// ObservedRun says which run an observation is about.
type ObservedRun struct {
	Run   string
	Graph graph.Ref
	Owner backend.Owner
	// Seq is the checkpoint sequence of the last commit that is known.
	Seq int64
	// Metadata is nil while the document is not known.
	Metadata map[string]string
}

// ObservedStart is one start.
type ObservedStart struct {
	ObservedRun
	// Existing: the start key was held by another run, whose id is Run.
	Existing bool
	// Err is why there is no run; nil before it is known.
	Err error
}

// ObservedClaim is one claim: a launch of a run.
type ObservedClaim struct {
	ObservedRun
	// Class is claim.Expired when the run was stolen from a claim that had expired.
	Class claim.Class
	// Attempt counts launches without a commit between them, this one included.
	Attempt int
	// Fresh: the run was stored as claimed by its start.
	Fresh bool
	// At is when it was claimed. Due is since when the run had waited for that: since its last commit or
	// the timer that woke it. Zero when the document does not tell: it was stolen,
	// given back without a commit, or could not be read. A run whose start was put off waits
	// since it was stored. Both by the backend's clock.
	At, Due time.Time
}

// ObservedEnd is the end of a claim.
type ObservedEnd struct {
	ObservedRun
	// Commits counts those under the claim, Held is how long it was held.
	Commits int
	Held    time.Duration
	// Lost is where it turned out that the claim was no longer this engine's; empty when
	// it gave the claim up itself.
	Lost FenceStage
}

// FenceStage says where it turned out that a claim was lost.
type FenceStage string

// The stages.
const (
	// FenceBegin: the run had moved on, or was deleted, before it began here.
	FenceBegin FenceStage = "begin"
	// FenceRefresh: a heartbeat found another claim, or none, or this engine took the expired claim over itself.
	FenceRefresh FenceStage = "refresh"
	// FenceExpiry: the claim could not be refreshed in time, and was given up before another may take it.
	FenceExpiry FenceStage = "expiry"
	// FenceCommit: a commit was refused.
	FenceCommit FenceStage = "commit"
	// FenceSignal: an answer or a cancel through this engine revoked the claim.
	FenceSignal FenceStage = "signal"
)

// FenceStages lists every stage.
func FenceStages() []FenceStage {
	return []FenceStage{FenceBegin, FenceRefresh, FenceExpiry, FenceCommit, FenceSignal}
}

// ObservedLoss is a claim that was no longer this engine's.
type ObservedLoss struct {
	ObservedRun
	Stage FenceStage
}

// ObservedPoison is a run that was parked until an operator frees it.
type ObservedPoison struct {
	ObservedRun
	// Reason is claim.MaxAttemptsExceeded or claim.MaxAbandonsExceeded.
	Reason string
}

// ObservedCommit is a commit that is stored.
type ObservedCommit struct {
	ObservedRun
	Type   checkpoint.Type
	Status run.Status
	// Driven: it was made under a claim of this engine's, and not by a start or a signal.
	Driven bool
	// Took is how long the backend needed, repetitions included.
	Took time.Duration
}

// ObservedGroup is one call of the backend with commits of driven runs.
type ObservedGroup struct {
	Size int
	Took time.Duration
}

// ObservedAttempt is one node at work. What it came to is known when it is Attempted.
type ObservedAttempt struct {
	ObservedRun
	// Node is the node's id in its graph; Use and Version are its type.
	Node, Use string
	Version   int
	Task      string
	// Attempt is the number of recorded failures of the task, plus one.
	Attempt int

	Took time.Duration
	// Outcome is zero when the attempt was cut short and comes to nothing: the claim was lost, the
	// run cancelled, the engine shut down.
	Outcome run.ResultKind
	// Code is that of its failure.
	Code string
	// Stuck: the node ignored the end of its context and was left behind.
	Stuck bool
}

// observed reports whether there are observers.
func (e *Engine) observed() bool { return len(e.cfg.Observers) > 0 }

// tell calls every observer that has the function, whose panic is logged.
func (e *Engine) tell(ctx context.Context, name, runID string, each func(o *Observer)) {
	for i := range e.cfg.Observers {
		e.guard(ctx, "Observer."+name, runID, func() { each(&e.cfg.Observers[i]) })
	}
}

// with is ctx with the values of another context.
func with(ctx, values context.Context) context.Context {
	if values == nil {
		return ctx
	}
	return valuesContext{ctx, context.WithoutCancel(values)}
}

// valuesContext ends as its context does, and has the values of another first.
type valuesContext struct {
	context.Context
	values context.Context
}

func (c valuesContext) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

func (e *Engine) tellStarting(ctx context.Context, s ObservedStart) (context.Context, map[string]string) {
	var metadata map[string]string
	e.tell(ctx, "Starting", s.Run, func(o *Observer) {
		if o.Starting == nil {
			return
		}
		values, more := o.Starting(ctx, s)
		ctx = with(ctx, values)
		for k, v := range more {
			if metadata == nil {
				metadata = map[string]string{}
			}
			metadata[k] = v
		}
	})
	return ctx, metadata
}

func (e *Engine) tellStarted(ctx context.Context, s ObservedStart) {
	e.tell(ctx, "Started", s.Run, func(o *Observer) {
		if o.Started != nil {
			o.Started(ctx, s)
		}
	})
}

func (e *Engine) tellCommitted(ctx context.Context, owner backend.Owner, p *run.Proposal, driven bool, took time.Duration) {
	if !e.observed() {
		return
	}
	c := ObservedCommit{ObservedRun: observed(owner, p.Document), Type: p.Type, Status: p.Document.Status, Driven: driven, Took: took}
	e.tell(ctx, "Committed", c.Run, func(o *Observer) {
		if o.Committed != nil {
			o.Committed(ctx, c)
		}
	})
}

func observed(owner backend.Owner, d *run.Document) ObservedRun {
	return ObservedRun{Run: d.ID, Graph: d.Graph, Owner: owner, Seq: d.Seq, Metadata: d.Metadata}
}

func (e *Engine) tellGrouped(size int, took time.Duration) {
	ctx := context.Background()
	e.tell(ctx, "Grouped", "", func(o *Observer) {
		if o.Grouped != nil {
			o.Grouped(ctx, ObservedGroup{Size: size, Took: took})
		}
	})
}

func (e *Engine) tellPoisoned(ctx context.Context, p ObservedPoison) {
	e.tell(ctx, "Poisoned", p.Run, func(o *Observer) {
		if o.Poisoned != nil {
			o.Poisoned(ctx, p)
		}
	})
}

// observed is the run as the vehicle knows it. Of the holder of the baton.
func (v *vehicle) observed() ObservedRun {
	r := ObservedRun{
		Run: v.lease.Run, Graph: graph.Ref{ID: v.lease.GraphID, Hash: v.lease.GraphHash},
		Owner: v.lease.Owner, Seq: v.seq.Load(), Metadata: v.metadata,
	}
	if v.doc != nil {
		r.Graph = v.doc.Graph
	}
	return r
}

// tellClaimed tells of the claim, with its document when that could be read.
func (v *vehicle) tellClaimed(d *run.Document) {
	if !v.engine.observed() || v.claimTold {
		return
	}
	v.claimTold, v.began = true, v.engine.clock.Now()
	c := ObservedClaim{Class: v.lease.Class, Attempt: v.lease.Attempt, Fresh: v.fresh, At: v.lease.ClaimedAt}
	if d != nil {
		v.metadata = d.Metadata
		if c.Class != claim.Expired && c.Attempt == 1 {
			c.Due = dueSince(d)
		}
	}
	c.ObservedRun = v.observed()
	ctx := v.told
	v.engine.tell(ctx, "Claimed", c.Run, func(o *Observer) {
		if o.Claimed != nil {
			ctx = with(ctx, o.Claimed(ctx, c))
		}
	})
	v.mu.Lock()
	v.told = ctx
	v.mu.Unlock()
}

// dueSince is when a run became due that is claimed for the first time since its last commit.
func dueSince(d *run.Document) time.Time {
	due := time.Time{}
	for _, t := range d.Timers {
		if due.IsZero() || t.At.Before(due) {
			due = t.At
		}
	}
	if due.Before(d.UpdatedAt) {
		return d.UpdatedAt
	}
	return due
}

func (v *vehicle) tellEnded() {
	if !v.claimTold {
		return
	}
	end := ObservedEnd{ObservedRun: v.observed(), Commits: v.commits, Held: v.engine.clock.Now().Sub(v.began), Lost: v.lostAt}
	if end.Lost != "" {
		v.engine.tell(v.told, "FenceLost", end.Run, func(o *Observer) {
			if o.FenceLost != nil {
				o.FenceLost(v.told, ObservedLoss{ObservedRun: end.ObservedRun, Stage: end.Lost})
			}
		})
	}
	v.engine.tell(v.told, "Ended", end.Run, func(o *Observer) {
		if o.Ended != nil {
			o.Ended(v.told, end)
		}
	})
}

func (v *vehicle) tellAbandoned(a Abandon) {
	e := v.engine
	e.tell(v.told, "Abandoned", a.Run, func(o *Observer) {
		if o.Abandoned != nil {
			o.Abandoned(v.told, a)
		}
	})
	if a.Disposition == claim.Poisoned {
		e.tellPoisoned(v.told, ObservedPoison{ObservedRun: v.observed(), Reason: claim.MaxAbandonsExceeded})
	}
}

// observedAttempt is what observers are told of an attempt.
type observedAttempt struct {
	ObservedAttempt // as it is before it begins

	// Set before the node is called, under the vehicle's lock.
	told  context.Context // nil: not called
	began time.Time
}

// prepareObserved notes what observers will be told. The caller holds the baton.
func (a *attempt) prepareObserved() {
	if !a.vehicle.engine.observed() {
		return
	}
	n := a.activation.Node
	a.observed = &observedAttempt{ObservedAttempt: ObservedAttempt{
		ObservedRun: a.vehicle.observed(), Node: n.ID, Use: n.Use, Version: n.Version,
		Task: a.activation.Task, Attempt: a.activation.Attempt,
	}}
}

// tellAttempting tells that the node is about to be called, and answers the context to call it with.
func (a *attempt) tellAttempting() context.Context {
	if a.observed == nil {
		return a.ctx
	}
	v, ctx := a.vehicle, a.ctx
	v.engine.tell(a.ctx, "Attempting", a.observed.Run, func(o *Observer) {
		if o.Attempting != nil {
			ctx = with(ctx, o.Attempting(ctx, a.observed.ObservedAttempt))
		}
	})
	v.mu.Lock()
	a.observed.told, a.observed.began = ctx, v.engine.clock.Now()
	v.mu.Unlock()
	return ctx
}

// tellAttempted tells what the attempt came to. Its caller has ended it.
func (a *attempt) tellAttempted(result run.Result, cut, stuck bool) {
	if a.observed == nil {
		return
	}
	v := a.vehicle
	v.mu.Lock()
	ctx, began := a.observed.told, a.observed.began
	v.mu.Unlock()
	if ctx == nil {
		return
	}
	seen := a.observed.ObservedAttempt
	seen.Took, seen.Stuck = v.engine.clock.Now().Sub(began), stuck
	if !cut {
		seen.Outcome = result.Kind()
		if f, failed := result.Failure(); failed {
			seen.Code = f.Code
		}
	}
	v.engine.tell(ctx, "Attempted", seen.Run, func(o *Observer) {
		if o.Attempted != nil {
			o.Attempted(ctx, seen)
		}
	})
}
