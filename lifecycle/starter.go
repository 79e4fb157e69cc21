package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

var (
	// errNoLane is of a start that has waited long enough for a lane, and goes without.
	errNoLane = errors.New("belay: no lane was free")
	errLeft   = errors.New("belay: the context ended before the answer: the run may be stored (give a start an ID or a Key, and it can be made again safely)")
)

// startPatience is for how long a call takes its owner's lane: one that lasts longer hangs, perhaps, and holds up
// nobody else. Nobody waits for the lane longer than that either.
const startPatience = 250 * time.Millisecond

// starter stores the runs that callers start one by one, in groups when they come faster than the backend
// takes them: one that finds its owner's lane free goes alone and at once, in its caller's goroutine, and what comes
// meanwhile goes together when it is free again. Nobody waits for a group to fill, and nobody longer than the context of the call. Groups are
// sent by goroutines of their own: unlike a commit's, the callers of a start may leave.
type starter struct {
	engine *Engine

	mu     sync.Mutex
	queues map[backend.Owner]*startQueue // of the owners with a call under way
}

// startQueue has the starts of one owner, since a call of the backend is for one.
type startQueue struct {
	owner   backend.Owner
	lanes   []*startLane // the calls under way, which is one unless some hang
	waiting []*starting
}

type startLane struct{ began time.Time }

// starting is a start that waits for a lane, or for the answer of its group.
type starting struct {
	ctx  context.Context
	init backend.Initialization
	turn event // it was answered, or has waited for long enough

	// Under the starter's lock.
	group    *startGroup // nil before it was sent
	left     bool        // its caller waits no longer
	answered bool
	answer   backend.InsertResult
}

// startGroup is a call of the backend for several callers. It ends when none of them waits any more.
type startGroup struct {
	ctx     context.Context
	cancel  context.CancelFunc
	members []*starting
	staying int
}

func newStarter(e *Engine) *starter {
	return &starter{engine: e, queues: map[backend.Owner]*startQueue{}}
}

// insert stores one run and answers as Store.InsertRun does. Those that others must not wait for go alone: a
// start that is sent again, and one whose caller chose its id or gave it a start key, since
// somebody else's open transaction may hold those.
func (s *starter) insert(ctx context.Context, owner backend.Owner, init backend.Initialization, alone bool) (backend.Inserted, error) {
	if s.engine.features.Batches == nil || alone {
		return s.engine.store.InsertRun(ctx, owner, init)
	}
	s.mu.Lock()
	q := s.queues[owner]
	if q == nil {
		q = &startQueue{owner: owner}
		s.queues[owner] = q
	}
	if now := s.engine.clock.Now(); q.free(now) {
		lane := &startLane{began: now}
		q.lanes = append(q.lanes, lane)
		s.mu.Unlock()
		defer s.leave(q, lane)
		return s.engine.store.InsertRun(ctx, owner, init)
	}
	m := &starting{ctx: ctx, init: init, turn: s.engine.scheduler.NewEvent()}
	q.waiting = append(q.waiting, m)
	s.mu.Unlock()
	inserted, err := s.await(q, m)
	if err == nil || ctx.Err() != nil {
		return inserted, err
	}
	// It was not sent in time, or its group was spoiled: its own answer, in case another member is to blame.
	open := backend.Classify(err) == backend.Unknown
	inserted, err = s.engine.store.InsertRun(ctx, owner, init)
	return inserted, backend.StillOpen(err, open)
}

// free reports whether the lane is. The starter is locked.
func (q *startQueue) free(now time.Time) bool {
	return !slices.ContainsFunc(q.lanes, func(lane *startLane) bool { return now.Sub(lane.began) < startPatience })
}

// await waits for the answer of a member, as long as its context and, for a lane, startPatience allow.
func (s *starter) await(q *startQueue, m *starting) (backend.Inserted, error) {
	defer context.AfterFunc(m.ctx, m.turn.Set)()
	defer s.engine.clock.AfterFunc(startPatience, m.turn.Set)()
	for {
		m.turn.Wait()
		if answer := s.look(q, m); answer != nil {
			return answer.Inserted, answer.Err
		}
	}
}

// look is what has become of a member, nil while it has to wait.
func (s *starter) look(q *startQueue, m *starting) *backend.InsertResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := m.ctx.Err()
	switch {
	case m.answered:
		return &m.answer
	case m.group == nil:
		q.waiting = slices.DeleteFunc(q.waiting, func(other *starting) bool { return other == m })
		return &backend.InsertResult{Err: &backend.InfrastructureError{Op: "start", Nature: backend.Transient, Err: cmp.Or(ended, errNoLane)}}
	case ended != nil:
		m.left = true
		if m.group.staying--; m.group.staying == 0 {
			m.group.cancel()
		}
		return &backend.InsertResult{Err: fmt.Errorf("%w: %w", errLeft, ended)}
	default:
		return nil
	}
}

// leave ends a call, and gives its lane to those that wait, unless others have it already: it hung.
func (s *starter) leave(q *startQueue, lane *startLane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.lanes = slices.DeleteFunc(q.lanes, func(other *startLane) bool { return other == lane })
	now := s.engine.clock.Now()
	if len(q.waiting) > 0 && q.free(now) {
		next, g := &startLane{began: now}, q.take()
		q.lanes = append(q.lanes, next)
		s.engine.scheduler.Go(func() { s.serve(q, next, g) })
	}
	if len(q.lanes) == 0 {
		delete(s.queues, q.owner)
	}
}

// take makes a group of those that have waited longest. The starter is locked.
func (q *startQueue) take() *startGroup {
	g := &startGroup{members: slices.Clone(q.waiting[:min(len(q.waiting), groupLimit)])}
	q.waiting = slices.Delete(q.waiting, 0, len(g.members))
	// The values of the first serve for all; no single one's end is the group's.
	g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(g.members[0].ctx))
	g.staying = len(g.members)
	for _, m := range g.members {
		m.group = g
	}
	return g
}

// serve sends a group and tells its members, whatever the backend does to this goroutine.
func (s *starter) serve(q *startQueue, lane *startLane, g *startGroup) {
	answers := make([]backend.InsertResult, len(g.members))
	for i := range answers {
		answers[i].Err = errUnanswered
	}
	defer func() {
		nobodys := s.tell(g, answers)
		s.leave(q, lane)
		s.giveBack(g.ctx, nobodys)
	}()
	err := answered(func() error {
		if len(g.members) == 1 {
			answers[0].Inserted, answers[0].Err = s.engine.store.InsertRun(g.ctx, q.owner, g.members[0].init)
			return nil
		}
		inits := make([]backend.Initialization, len(g.members))
		for i, m := range g.members {
			inits[i] = m.init
		}
		if got := s.engine.features.Batches.InsertRuns(g.ctx, q.owner, inits); len(got) == len(answers) {
			answers = got
		}
		return nil
	})
	if err != nil {
		for i := range answers {
			answers[i].Err = err
		}
	}
}

// tell answers the members of a group. It answers the claims of those whose callers have left: nobody drives
// their runs.
func (s *starter) tell(g *startGroup, answers []backend.InsertResult) (nobodys []*claim.Lease) {
	g.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range g.members {
		m.answer, m.answered = answers[i], true
		m.turn.Set()
		if lease := m.answer.Lease; m.left && lease != nil {
			nobodys = append(nobodys, lease)
		}
	}
	return nobodys
}

// giveBack releases claims, so that their runs are due at once.
func (s *starter) giveBack(ctx context.Context, leases []*claim.Lease) {
	if len(leases) == 0 {
		return
	}
	e, ctx := s.engine, context.WithoutCancel(ctx)
	for _, lease := range leases {
		if err := e.release(ctx, lease, claim.ReleasePolicy{Refund: true}); err != nil {
			e.log.LogAttrs(ctx, e.outage.warning(), notReleased,
				slog.String(keyRun, lease.Run), slog.String(keyError, err.Error()))
		}
	}
	e.Wake()
}
