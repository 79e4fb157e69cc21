package lifecycle

import (
	"errors"
	"log/slog"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// settle turns the superstep's results into a commit and applies it. It reports whether the
// vehicle goes on.
func (v *vehicle) settle() bool {
	v.mu.Lock()
	cause, attempts := v.cause, v.attempts
	v.attempts = nil
	v.mu.Unlock()
	results := make([]run.Result, len(attempts))
	complete := true
	for i := range attempts {
		results[i] = attempts[i].result
		complete = complete && !attempts[i].cut
	}
	// What finished although a shutdown had ended its context is worth a commit.
	if cause != nil && !(complete && errors.Is(cause, ErrShutdown)) {
		v.leave(cause)
		return false
	}
	p, err := v.machine.Settle(v.doc, v.plan, results, v.now())
	if err != nil {
		v.broken(err)
		return false
	}
	return v.apply(p)
}

// apply commits a proposal and reports whether the vehicle goes on.
func (v *vehicle) apply(p run.Proposal) bool {
	var began time.Time
	if v.engine.observed() {
		began = v.engine.clock.Now()
	}
	mark := v.engine.watch.mark()
	err := v.send(&p)
	if errors.Is(err, value.ErrTooLarge) && len(v.plan.Execute) > 0 {
		// The backend's limits are narrower than the engine's. The same results would be
		// refused for ever, so the run fails by them.
		if p, err = v.settleTooLarge(err); err == nil {
			err = v.send(&p)
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, checkpoint.ErrStaleFence):
		v.lost(FenceCommit, err.Error())
		return false
	case errors.Is(err, backend.ErrNotFound):
		v.lost(FenceCommit, "the run does not exist any more")
		return false
	case v.ended() != nil && backend.Classify(err) != backend.Permanent:
		// Nobody waits for its outcome any more: whoever claims the run finds it.
		v.leave(v.ended())
		return false
	default:
		v.broken(err)
		return false
	}
	v.doc, v.plan = p.Document, run.Plan{}
	v.seq.Store(p.Document.Seq)
	v.commits++
	v.engine.stats.commits.Add(1)
	v.say(slog.LevelDebug, "belay: committed", slog.String("type", string(p.Type)), slog.String("schedule", p.Schedule.Kind.String()))
	if f := p.Document.Failure; f != nil {
		v.say(slog.LevelWarn, "belay: a run failed, its events and its failure say why",
			slog.String(keyGraph, p.Document.Graph.ID), slog.String(keyNode, f.Node), slog.String(keyReason, f.Code))
	}
	v.engine.watch.committed(v.lease.Owner, &p, mark)
	v.reached.Store(p.Document) // after it was handed over, or an announcement of it would make a waiter read
	v.engine.observe(v.told, p.Document, p.Events)
	if v.engine.observed() {
		v.engine.tellCommitted(v.told, v.lease.Owner, &p, true, v.engine.clock.Now().Sub(began))
	}
	if p.Schedule.Kind == checkpoint.Retain {
		return true
	}
	v.wake = wakeOf(p)
	v.parked = p.Type == checkpoint.Snoozed || p.Type == checkpoint.RetryScheduled
	v.finish()
	return false
}

// settleTooLarge fails the run by results that cannot be stored.
func (v *vehicle) settleTooLarge(why error) (run.Proposal, error) {
	results := make([]run.Result, len(v.plan.Execute))
	for i, act := range v.plan.Execute {
		results[i] = run.Permanent(act.Node.ID, run.Failure{Code: run.CodeTooLarge, Message: why.Error(), Node: act.Node.ID})
	}
	return v.machine.Settle(v.doc, v.plan, results, v.now())
}

// send sends one commit until its outcome is known: when an answer is lost, the same commit is
// sent again, under the same id. The run goes back to the queue with it when others are to
// have their turn.
func (v *vehicle) send(p *run.Proposal) error {
	e := v.engine
	if p.Schedule.Kind == checkpoint.Retain && (v.session.stopping() || v.commits+1 >= e.cfg.CommitBudget || v.ended() != nil) {
		p.Schedule = checkpoint.Schedule{Kind: checkpoint.ReleaseNow}
	}
	c := backend.Commit{Proposal: *p, CheckpointID: checkpoint.ID(e.ids.CheckpointID()), Token: v.lease.Token}
	for n := 0; ; n++ {
		sent := e.clock.Now()
		done, err := v.session.committer.commit(c, n > 0)
		if err == nil {
			if done.Replayed {
				e.stats.replays.Add(1)
			}
			if p.Schedule.Kind == checkpoint.Retain {
				e.beat.confirm(v, sent)
			}
			e.outage.over(v.told)
			return nil
		}
		if n == commitRetryLimit || backend.Classify(err) == backend.Permanent {
			return err
		}
		v.say(slog.LevelDebug, "belay: the outcome of a commit is open, it is sent again", slog.String(keyError, err.Error()))
		e.outage.failed(v.told, err, retryDelay(n))
		if !e.sleep(v.ctx, retryDelay(n)) {
			return err
		}
	}
}
