package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
)

const (
	// startLanes is how many starts or groups of starts of an owner are under way at once. A start that
	// finds a free lane goes alone and at once, in its caller's goroutine; what comes while it is taken
	// goes together when it is free.
	startLanes = 1
	// startPatience is for how long a call takes a lane: one that lasts longer hangs, perhaps, and holds up
	// nobody else. Nobody waits for a lane longer than that either.
	startPatience = 250 * time.Millisecond
)

// starter stores the runs that callers start one by one, in groups when they come faster than the backend
// takes them. Nobody waits for a group to fill, and nobody longer than the context of the call. Groups are
// sent by goroutines of their own: unlike a commit's, the callers of a start may leave.
type starter struct {
	engine *Engine

	mu     sync.Mutex
	queues map[backend.Owner]*startQueue // of the owners with a call under way
}

// startQueue has the starts of one owner, since a call of the backend is for one.
type startQueue struct {
	owner   backend.Owner
	lanes   []*startLane // those with a call under way
	waiting []*starting  // for one
}

type startLane struct{ began time.Time }

// starting is a start that waits for a lane, or for the answer of its group.
type starting struct {
	ctx  context.Context
	init backend.Initialization
	turn event // something may have become of it

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
	inserted, err, known := s.await(q, m)
	if !known {
		return s.engine.store.InsertRun(ctx, owner, init)
	}
	return inserted, err
}

// free reports whether a lane is. The starter is locked.
func (q *startQueue) free(now time.Time) bool {
	taken := 0
	for _, lane := range q.lanes {
		if now.Sub(lane.began) < startPatience {
			taken++
		}
	}
	return taken < startLanes
}

// await waits for the answer of a member. It is not known of one that was not sent in time, and of one whose
// group was spoiled: its own answer it gets alone, in case another member is to blame.
func (s *starter) await(q *startQueue, m *starting) (inserted backend.Inserted, err error, known bool) {
	defer context.AfterFunc(m.ctx, m.turn.Set)()
	defer s.engine.clock.AfterFunc(startPatience, m.turn.Set)()
	for {
		m.turn.Wait()
		s.mu.Lock()
		answered, sent, ended := m.answered, m.group != nil, m.ctx.Err()
		switch {
		case answered:
		case !sent:
			q.waiting = slices.DeleteFunc(q.waiting, func(other *starting) bool { return other == m })
		case ended != nil:
			m.left = true
			if m.group.staying--; m.group.staying == 0 {
				m.group.cancel()
			}
		}
		s.mu.Unlock()
		switch {
		case answered:
			return m.answer.Inserted, nil, m.answer.Err == nil
		case ended != nil && !sent:
			return inserted, fmt.Errorf("belay: the run was not stored: %w", ended), true
		case ended != nil:
			return inserted, fmt.Errorf("%w: %w", errUnanswered, ended), true
		case !sent:
			return inserted, nil, false
		}
	}
}

// leave ends a call, and gives its lane to those that wait.
func (s *starter) leave(q *startQueue, lane *startLane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(q.waiting) == 0 {
		q.lanes = slices.DeleteFunc(q.lanes, func(other *startLane) bool { return other == lane })
		if len(q.lanes) == 0 {
			delete(s.queues, q.owner)
		}
		return
	}
	g := q.take()
	lane.began = s.engine.clock.Now()
	s.engine.scheduler.Go(func() { s.serve(q, lane, g) })
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
	defer s.leave(q, lane)
	answers := make([]backend.InsertResult, len(g.members))
	for i := range answers {
		answers[i].Err = errUnanswered
	}
	defer func() { s.tell(g, answers) }()
	err := answered(func() error {
		if only := g.members[0]; len(g.members) == 1 {
			answers[0].Inserted, answers[0].Err = s.engine.store.InsertRun(g.ctx, q.owner, only.init)
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

// tell answers the members of a group. Runs whose callers have left are given back, if they were stored as
// claimed: nobody drives them here.
func (s *starter) tell(g *startGroup, answers []backend.InsertResult) {
	g.cancel()
	s.mu.Lock()
	var nobodys []*claim.Lease
	for i, m := range g.members {
		m.answer, m.answered = answers[i], true
		m.turn.Set()
		if lease := m.answer.Lease; m.left && lease != nil {
			nobodys = append(nobodys, lease)
		}
	}
	s.mu.Unlock()
	for _, lease := range nobodys {
		// Where this fails the claim ends with its TTL.
		_ = answered(func() error {
			return s.engine.store.ReleaseClaim(context.WithoutCancel(g.ctx), lease.Run, lease.Token, claim.ReleasePolicy{Refund: true})
		})
		s.engine.Wake()
	}
}
