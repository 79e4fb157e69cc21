package lifecycle

import (
	"context"
	"log/slog"
	"time"

	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// attempt is one node at work. It ends once: by returning, or by being given up after its
// context ended.
type attempt struct {
	vehicle    *vehicle
	activation *run.Activation
	call       node.Call
	ctx        context.Context
	timeout    time.Duration // 0: none, and the vehicle's own context
	deadline   deadline
	stopTimer  func() bool

	// Under the vehicle's lock.
	goroutine goroutine
	expired   bool
	over      bool
	cut       bool // it ended with its context, and there is no result
	result    run.Result

	observed *observedAttempt // nil without observers
}

// execute runs the plan's activations, the first on this goroutine and the others on
// their own. It reports whether this goroutine still holds the baton, with every result in.
func (v *vehicle) execute() bool {
	attempts := make([]attempt, len(v.plan.Execute))
	for i := range attempts {
		attempts[i].begin(v, &v.plan.Execute[i])
	}
	own := v.goroutine
	v.mu.Lock()
	cause := v.cause
	if cause == nil {
		v.attempts, v.pending = attempts, len(attempts)
	}
	v.mu.Unlock()
	if cause != nil {
		v.leave(cause)
		return false
	}

	var first *attempt
	for i := range attempts {
		a := &attempts[i]
		switch {
		case !v.engine.limits.enter(a): // it waits for others of its type
		case first == nil:
			first = a
		default:
			v.launch(a)
		}
	}
	if first == nil {
		return false
	}
	v.mu.Lock()
	first.goroutine = own
	v.mu.Unlock()
	if !first.run() {
		return false
	}
	v.goroutine = own
	return true
}

// launch runs an attempt on a goroutine of its own, which carries on when it was the last.
func (v *vehicle) launch(a *attempt) {
	v.engine.scheduler.Go(func() {
		here := currentGoroutine()
		v.mu.Lock()
		a.goroutine = here
		v.mu.Unlock()
		if a.run() {
			v.session.carryOn(v)
		}
	})
}

// begin says what the node is told.
func (a *attempt) begin(v *vehicle, act *run.Activation) {
	a.vehicle, a.activation, a.ctx, a.timeout = v, act, v.told, act.Node.Timeout
	tenant, _ := v.lease.Owner.Tenant()
	a.call = node.Call{
		Run: v.lease.Run, Node: act.Node.ID, Task: act.Task, AttemptID: act.AttemptID, Attempt: act.Attempt,
		Use: act.Node.Use, Version: act.Node.Version, Tenant: tenant, Metadata: v.doc.Metadata,
		IdempotencyKey: act.Task, PlannedAt: act.PlannedAt, Answers: act.Answers, Now: v.now,
	}
	if len(act.Snapshot) > 0 {
		a.call.Reads = make(map[string]value.Value, len(act.Snapshot))
		for _, c := range act.Snapshot {
			a.call.Reads[c.Name] = c.Value
		}
	}
	if len(act.Node.Writes) > 0 {
		a.call.Writes = make([]string, len(act.Node.Writes))
		for i, b := range act.Node.Writes {
			a.call.Writes[i] = b.Name
		}
	}
	if a.timeout == 0 {
		a.timeout = v.engine.cfg.MaxNodeTimeout
	}
	a.prepareObserved()
}

// run calls the node, and reports whether it was the last of its superstep: the caller then holds
// the baton. The time that the node may take begins here.
func (a *attempt) run() (last bool) {
	if v := a.vehicle; a.timeout > 0 {
		a.call.Deadline = v.now().Add(a.timeout)
		a.deadline = v.engine.withDeadline(a.ctx, a.timeout, a.timedOut())
		a.ctx = a.deadline.ctx
		a.stopTimer = v.engine.clock.AfterFunc(a.timeout, a.expire)
		defer func() {
			a.stopTimer()
			a.deadline.cancel()
		}()
	}
	return a.returned(a.vehicle.nodes.RunHere(a.tellAttempting(), &a.call, a.exiting))
}

// returned takes what the node's call came to, and answers as run does.
func (a *attempt) returned(result run.Result, err error) (last bool) {
	a.vehicle.engine.limits.leave(a.activation.Node.Use)
	return a.finish(result, err != nil)
}

// exiting goes on elsewhere: the node is ending the goroutine that called it.
func (a *attempt) exiting(result run.Result, err error) {
	v := a.vehicle
	v.engine.scheduler.Go(func() {
		if a.returned(result, err) {
			v.session.carryOn(v)
		}
	})
}

func (a *attempt) timedOut() *TimeoutError {
	return &TimeoutError{Node: a.activation.Node.ID, Timeout: a.timeout}
}

// expire ends the attempt's context at its deadline, and the attempt itself when the node
// does not return within the grace.
func (a *attempt) expire() {
	v := a.vehicle
	v.mu.Lock()
	if a.over {
		v.mu.Unlock()
		return
	}
	a.expired = true
	v.mu.Unlock()
	a.deadline.expire()
	v.engine.clock.AfterFunc(v.engine.cfg.NodeGrace, a.giveUp)
}

// finish takes the node's result, or that it was cut short and has none, and reports whether it
// was the last one. What comes after the attempt was given up is dropped; what came after its
// deadline has been turned into a failure.
func (a *attempt) finish(result run.Result, cut bool) (last bool) {
	v := a.vehicle
	v.mu.Lock()
	late := a.over || a.expired
	ends := !a.over
	a.over = true
	v.mu.Unlock()
	if ends {
		a.tellAttempted(result, cut, false)
		last = v.takes(a, result, cut)
	}
	if late {
		v.engine.stats.lateResults.Add(1)
		v.say(slog.LevelInfo, "belay: a node returned after its attempt had ended, what it returned is dropped",
			slog.String(keyNode, a.activation.Node.ID), slog.Int(keyAttempt, a.activation.Attempt))
	}
	return last
}

// giveUp goes on without the node, whose goroutine is left behind.
func (a *attempt) giveUp() {
	v := a.vehicle
	v.mu.Lock()
	if a.over {
		v.mu.Unlock()
		return
	}
	a.over = true
	result, cut := a.timeoutResult(), !a.expired
	where := a.goroutine
	v.mu.Unlock()
	a.tellAttempted(result, cut, true)
	last := v.takes(a, result, cut)
	v.engine.stats.stuckNodes.Add(1)
	v.say(slog.LevelError, "belay: a node ignores the end of its context, its goroutine is left behind",
		slog.String(keyNode, a.activation.Node.ID), slog.Int(keyAttempt, a.activation.Attempt),
		slog.String(keyStack, where.stack()))
	if last {
		v.engine.scheduler.Go(func() { v.session.carryOn(v) })
	}
}

// takes counts an attempt that is over, with a result or cut short.
func (v *vehicle) takes(a *attempt, result run.Result, cut bool) (last bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	a.result, a.cut = result, cut
	v.pending--
	return v.pending == 0
}

func (a *attempt) timeoutResult() run.Result {
	id := a.activation.Node.ID
	return run.Retry(id, run.Failure{Code: run.CodeTimeout, Message: a.timedOut().Error(), Node: id}, time.Time{})
}

// deadline ends a node's context at an instant of the engine's clock.
type deadline struct {
	ctx    context.Context
	expire func() // when the instant has come
	cancel func() // when it does not matter any more
}

// withDeadline makes the context of a node with a timeout. The system's clock is the standard
// context's own, which then keeps the deadline, so that what a node calls sees
// context.DeadlineExceeded.
func (e *Engine) withDeadline(parent context.Context, d time.Duration, cause error) deadline {
	at := e.clock.Now().Add(d)
	if _, ok := e.clock.(systemClock); ok {
		ctx, cancel := context.WithDeadlineCause(parent, at, cause)
		return deadline{ctx: ctx, expire: func() {}, cancel: cancel}
	}
	ctx, cancel := context.WithCancelCause(parent)
	return deadline{
		ctx:    clockedContext{ctx, at},
		expire: func() { cancel(cause) },
		cancel: func() { cancel(context.Canceled) },
	}
}

// clockedContext tells the deadline that a clock of the host's will keep.
type clockedContext struct {
	context.Context
	at time.Time
}

func (c clockedContext) Deadline() (time.Time, bool) { return c.at, true }
