package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// vehicle drives one claimed run: plan, execute, settle, commit, until the run parks, finishes
// or has used up its commit budget. Exactly one goroutine at a time holds the baton, the right to touch the run:
// the one that claimed it, and after a superstep whoever finished that last. Nobody waits
// for a node, so a node that never returns costs its goroutine and nothing else.
type vehicle struct {
	engine  *Engine
	session *session
	lease   claim.Lease
	clock   instants
	claimed *backend.ClaimedDocument // nil: to be fetched

	// ctx is what the run's nodes get. It descends from no caller's; its cause says why
	// it ended.
	ctx    context.Context
	cancel context.CancelCauseFunc
	fresh  bool // the run was stored as claimed

	// Of the holder of the baton.
	goroutine goroutine
	doc       *run.Document
	machine   *run.Machine
	nodes     *node.Prepared
	plan      run.Plan
	commits   int
	wake      time.Time // when the run is due again, when this vehicle left it unfinished
	abandoned bool
	parked    bool // by its last commit, without a step
	claimTold bool
	began     time.Time // local instant at which observers were told of the claim
	metadata  map[string]string
	lostAt    FenceStage // where the claim turned out to be lost, when that ended the vehicle

	seq     atomic.Int64                 // of the last commit known here
	reached atomic.Pointer[run.Document] // that commit's, nil while it is not known

	mu       sync.Mutex
	told     context.Context // ctx, with what observers added; the holder of the baton sets it, and may read it as it is
	cause    error           // why the vehicle must end
	stage    FenceStage      // where that came from; empty: not from a lost claim
	finished bool
	attempts []attempt // of the superstep in flight
	pending  int       // attempts that have neither returned nor been given up

	// Of the heartbeat.
	confirmed  time.Time // local instant at which the claim was last known to be held
	prev, next *vehicle
	held       bool
}

func newVehicle(s *session, lease claim.Lease, clock instants, sent time.Time) *vehicle {
	v := &vehicle{engine: s.engine, session: s, lease: lease, clock: clock, confirmed: sent}
	v.seq.Store(lease.Seq)
	v.ctx, v.cancel = context.WithCancelCause(context.Background())
	v.told = v.ctx
	return v
}

// now is the backend's present, as the claim lets this vehicle know it.
func (v *vehicle) now() time.Time { return v.clock.at(v.engine.clock.Now()) }

// drive begins, and goes on as far as this goroutine gets.
func (v *vehicle) drive() {
	if v.session.stopping() {
		v.tellClaimed(nil)
		v.release(claim.ReleasePolicy{Refund: true})
		return
	}
	if v.load() {
		v.advance()
	}
}

// load gets the document and the graph ready. When it cannot, it hands the run back and
// reports false.
func (v *vehicle) load() bool {
	doc, err := v.document()
	v.tellClaimed(doc)
	if err != nil {
		v.refuseDocument(err)
		return false
	}
	if doc.Seq != v.lease.Seq {
		v.lost(FenceBegin, "the run moved on before it began here")
		return false
	}
	p, err := v.engine.programToDrive(v.session.io, v.lease.Owner, doc.Graph)
	if err != nil {
		v.refuseGraph(err)
		return false
	}
	nodes, err := p.bind(v.engine)
	if err != nil {
		v.refuseGraph(err)
		return false
	}
	v.engine.trouble.Store(0)
	v.doc, v.machine, v.nodes = doc, p.machine, nodes
	v.reached.Store(doc)
	return true
}

// document is the claimed document, or the stored one.
func (v *vehicle) document() (*run.Document, error) {
	if c := v.claimed; c != nil {
		v.claimed = nil
		return c.Document, c.Err
	}
	var doc *run.Document
	err := v.engine.retry(v.session.io, func() (err error) {
		doc, err = v.engine.store.FetchRun(v.session.io, backend.System(), v.lease.Run)
		return err
	})
	return doc, err
}

// advance plans and executes until the baton is handed on or the vehicle has finished.
func (v *vehicle) advance() {
	for {
		if cause := v.ended(); cause != nil {
			v.leave(cause)
			return
		}
		plan, err := v.machine.Plan(v.doc, v.now())
		switch {
		case err != nil:
			v.refusePlan(err)
			return
		case len(plan.Execute) > 0:
			if v.session.stopping() {
				v.release(claim.ReleasePolicy{Refund: true})
				return
			}
			if v.engine.beat.overdue(v) {
				v.giveUp("the claim was not refreshed in time, nothing is begun under it")
				return
			}
			v.plan = plan
			if !v.execute() || !v.settle() {
				return
			}
		case plan.Commit != nil:
			if !v.apply(*plan.Commit) {
				return
			}
		case !plan.Wake.IsZero():
			v.wake = plan.Wake
			v.release(claim.ReleasePolicy{After: max(plan.Wake.Sub(v.now()), 0), Refund: true})
			return
		default:
			v.refusePlan(errors.New("belay: a claimed run is waiting or finished"))
			return
		}
	}
}

// end tells the vehicle to stop: its nodes' contexts end with the cause, and what they still
// return is dropped. A commit that is under way is left to its fence.
func (v *vehicle) end(cause error, stage FenceStage) {
	v.mu.Lock()
	if v.cause != nil || v.finished {
		v.mu.Unlock()
		return
	}
	v.cause, v.stage = cause, stage
	executing := v.pending > 0
	attempts := v.attempts
	v.mu.Unlock()
	v.engine.watch.look(v.lease.Run)
	v.cancel(cause)
	if executing {
		if v.engine.limits.cut(attempts) {
			v.engine.scheduler.Go(func() { v.session.carryOn(v) })
		}
		v.engine.clock.AfterFunc(v.engine.cfg.NodeGrace, func() {
			for i := range attempts {
				attempts[i].giveUp()
			}
		})
	}
}

// ended is why the vehicle must stop, nil while it may go on.
func (v *vehicle) ended() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.cause
}

// seen is the run as this vehicle committed or found it last.
func (v *vehicle) seen() *Run {
	d := v.reached.Load()
	r := &Run{Document: d, Owner: v.lease.Owner, ClaimedAt: v.lease.ClaimedAt}
	if d.Seq == v.lease.Seq {
		r.Attempts = v.lease.Attempt
	}
	return r
}

// over reports whether the vehicle has finished.
func (v *vehicle) over() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.finished
}

// leave stops for a cause before anything was committed for it.
func (v *vehicle) leave(cause error) {
	v.mu.Lock()
	stage := v.stage
	v.mu.Unlock()
	switch {
	case errors.Is(cause, ErrShutdown):
		v.release(claim.ReleasePolicy{Refund: true})
	case stage == FenceExpiry:
		v.giveUp(cause.Error())
	default:
		v.lost("", cause.Error())
	}
}

// lost ends quietly: somebody else has the run, or had a say in it. An empty stage is the one at which
// the vehicle was told to end.
func (v *vehicle) lost(stage FenceStage, reason string) {
	v.mu.Lock()
	v.lostAt = cmp.Or(stage, v.stage)
	v.mu.Unlock()
	v.engine.stats.lostClaims.Add(1)
	v.say(slog.LevelInfo, "belay: stopped driving a run", slog.String(keyReason, reason))
	v.finish()
}

// finish frees what the vehicle holds here. The claim has been dealt with.
func (v *vehicle) finish() {
	v.mu.Lock()
	again := v.finished
	v.finished = true
	v.mu.Unlock()
	if again {
		return
	}
	v.engine.beat.drop(v)
	v.engine.watch.look(v.lease.Run)
	v.cancel(context.Canceled)
	v.tellEnded()
	v.session.finished(v)
}

// say logs about the run, under the context of its claim. It takes the vehicle's lock.
func (v *vehicle) say(level slog.Level, message string, attrs ...slog.Attr) {
	v.mu.Lock()
	ctx := v.told
	v.mu.Unlock()
	if !v.engine.log.Enabled(ctx, level) {
		return
	}
	v.engine.log.LogAttrs(ctx, level, message, append([]slog.Attr{
		slog.String(keyRun, v.lease.Run), slog.Int64(keySeq, v.seq.Load()),
	}, attrs...)...)
}
