package lifecycle

import (
	"context"
	"fmt"
	"sync"

	"github.com/belay-run/belay/backend"
)

// startLanes is how many starts or groups of starts are under way at once. A start that finds a free
// lane goes alone and at once, in its caller's goroutine; what comes while all are taken goes together
// with the next.
const startLanes = 2

// starter stores the runs that callers start one by one, in groups when they come faster than the backend
// takes them. Nobody waits for a group to fill, and nobody longer than the context of the call.
type starter struct {
	engine *Engine

	mu    sync.Mutex
	lanes int
	queue []*starting // while every lane is taken
}

// starting is a start that waits for a lane, or for the answer of its group.
type starting struct {
	ctx   context.Context
	owner backend.Owner
	init  backend.Initialization
	turn  event // it was answered, or its caller waits no longer

	// Under the starter's lock.
	group    *startGroup // nil before it was sent
	answered bool
	answer   backend.InsertResult
}

// startGroup is a call of the backend for several callers. It ends when none of them waits any more.
type startGroup struct {
	ctx     context.Context
	cancel  context.CancelFunc
	members []*starting
	waiting int
}

// insert stores one run and answers as Store.InsertRun does. Alone goes what others must not wait for: a
// start that is sent again, whatever spoiled its group, and one whose caller chose its id or gave it
// a start key, since somebody else's open transaction may hold those.
func (s *starter) insert(ctx context.Context, owner backend.Owner, init backend.Initialization, alone bool) (backend.Inserted, error) {
	batches := s.engine.features.Batches
	if batches == nil || alone {
		return s.engine.store.InsertRun(ctx, owner, init)
	}
	s.mu.Lock()
	if s.lanes < startLanes {
		s.lanes++
		s.mu.Unlock()
		defer s.leave(batches)
		return s.engine.store.InsertRun(ctx, owner, init)
	}
	m := &starting{ctx: ctx, owner: owner, init: init, turn: s.engine.scheduler.NewEvent()}
	s.queue = append(s.queue, m)
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, m.turn.Set)
	m.turn.Wait()
	stop()
	return s.answerOf(m)
}

// answerOf is what became of a member, as far as its caller waited for that.
func (s *starter) answerOf(m *starting) (backend.Inserted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case m.answered:
		return m.answer.Inserted, m.answer.Err
	case m.group == nil:
		for i, queued := range s.queue {
			if queued == m {
				s.queue = append(s.queue[:i], s.queue[i+1:]...)
				break
			}
		}
		return backend.Inserted{}, fmt.Errorf("belay: the run was not stored: %w", m.ctx.Err())
	default:
		if m.group.waiting--; m.group.waiting == 0 {
			m.group.cancel()
		}
		return backend.Inserted{}, fmt.Errorf("%w: %w", errUnanswered, m.ctx.Err())
	}
}

// leave gives the lane to those that wait.
func (s *starter) leave(batches backend.Batches) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.lanes--
		return
	}
	s.engine.scheduler.Go(func() { s.serve(batches) })
}

// serve sends groups until nobody waits. It has a lane.
func (s *starter) serve(batches backend.Batches) {
	for g := s.take(); g != nil; g = s.take() {
		inits := make([]backend.Initialization, len(g.members))
		for i, m := range g.members {
			inits[i] = m.init
		}
		answers := s.together(g, batches, inits)
		g.cancel()
		s.mu.Lock()
		for i, m := range g.members {
			m.answer, m.answered = answers[i], true
			m.turn.Set()
		}
		s.mu.Unlock()
	}
}

// take picks a group of one owner from the queue. Without one it gives the lane up.
func (s *starter) take() *startGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.lanes--
		return nil
	}
	first := s.queue[0]
	g := &startGroup{}
	// The values of the first serve for all; the end of no single one ends the group.
	g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(first.ctx))
	rest := s.queue[:0]
	for _, m := range s.queue {
		if len(g.members) < startTogether && m.owner == first.owner {
			m.group = g
			g.members = append(g.members, m)
		} else {
			rest = append(rest, m)
		}
	}
	clear(s.queue[len(rest):])
	s.queue = rest
	g.waiting = len(g.members)
	return g
}

// together calls the backend, whose panic must not strand the members.
func (s *starter) together(g *startGroup, batches backend.Batches, inits []backend.Initialization) (answers []backend.InsertResult) {
	all := func(err error) []backend.InsertResult {
		answers := make([]backend.InsertResult, len(inits))
		for i := range answers {
			answers[i].Err = err
		}
		return answers
	}
	defer func() {
		if r := recover(); r != nil {
			answers = all(fmt.Errorf("belay: the backend panicked: %s", panicText(r)))
		}
	}()
	if answers = batches.InsertRuns(g.ctx, g.members[0].owner, inits); len(answers) != len(inits) {
		return all(errUnanswered)
	}
	return answers
}
