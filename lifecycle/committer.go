package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
)

const (
	// commitLanes is how many commits or groups of a session are under way at once. A commit that
	// finds a free lane goes alone and at once; what comes while all are taken goes together
	// with the next.
	commitLanes = 2
	// groupLimit bounds a group.
	groupLimit = 100
	// atOnce is what a commit takes of a backend that waits for nothing, as one in memory. Waiting for a lane
	// or for a group would take longer, so nobody does.
	atOnce = 20 * time.Microsecond
)

// committer sends the commits of a session's vehicles, in groups when they come faster than the
// backend takes them. Nobody waits for a group to fill.
type committer struct {
	engine *Engine
	io     context.Context
	swift  atomic.Bool // the last commit that went alone took less than atOnce

	mu     sync.Mutex
	lanes  int
	queue  []*pending
	nobody []*pending // a queue to use again
}

// pending is a commit that waits for a lane, or for the answer of its group.
type pending struct {
	commit   backend.Commit
	answer   backend.CommitResult
	answered bool
	turn     event // it was answered, or leads the next group
}

func newCommitter(e *Engine, io context.Context) *committer {
	return &committer{engine: e, io: io}
}

// commit sends one commit and answers as Store.Commit does. One that is sent again goes alone,
// so that whatever spoiled a group does not spoil it twice.
func (c *committer) commit(commit backend.Commit, again bool) (backend.Committed, error) {
	batches := c.engine.features.Batches
	if batches == nil || again || c.swift.Load() {
		return c.alone(commit)
	}
	c.mu.Lock()
	if c.lanes < commitLanes && len(c.queue) == 0 {
		c.lanes++
		c.mu.Unlock()
		defer c.leave()
		return c.alone(commit)
	}
	p := &pending{commit: commit, turn: c.engine.scheduler.NewEvent()}
	c.queue = append(c.queue, p)
	c.mu.Unlock()
	p.turn.Wait()
	if !p.answered {
		c.lead(p, batches)
	}
	if err := p.answer.Err; err != nil && !errors.Is(err, checkpoint.ErrStaleFence) && !errors.Is(err, backend.ErrNotFound) {
		// Its own answer, in case another member is to blame.
		return c.alone(commit)
	}
	return p.answer.Committed, p.answer.Err
}

func (c *committer) alone(commit backend.Commit) (backend.Committed, error) {
	began := c.engine.clock.Now()
	done, err := c.engine.store.Commit(c.io, backend.System(), commit)
	took := c.engine.clock.Now().Sub(began)
	// A failure does not say how long commits take, nor does a clock that stood meanwhile.
	if swift := 0 < took && took < atOnce; err == nil && swift != c.swift.Load() {
		c.swift.Store(swift)
	}
	if c.engine.observed() {
		c.engine.tellGrouped(1, took)
	}
	return done, err
}

// lead sends a group on behalf of its members. The caller has a lane.
func (c *committer) lead(p *pending, batches backend.Batches) {
	defer c.leave()
	group := c.take(p)
	if len(group) == 1 {
		p.answer.Committed, p.answer.Err = c.alone(p.commit)
		return
	}
	commits := make([]backend.Commit, len(group))
	for i, member := range group {
		commits[i] = member.commit
	}
	answers, err := c.together(batches, commits)
	for i, member := range group {
		if err != nil {
			member.answer.Err = err
		} else {
			member.answer = answers[i]
		}
		member.answered = true
		if member != p {
			member.turn.Set()
		}
	}
}

// together calls the backend, whose panic must not strand the members.
func (c *committer) together(batches backend.Batches, commits []backend.Commit) (answers []backend.CommitResult, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("belay: the backend panicked: %s", panicText(r))
		}
	}()
	if c.engine.observed() {
		began := c.engine.clock.Now()
		defer func() { c.engine.tellGrouped(len(commits), c.engine.clock.Now().Sub(began)) }()
	}
	answers = batches.Commits(c.io, backend.System(), commits)
	if len(answers) != len(commits) {
		err = fmt.Errorf("belay: the backend answered %d of %d commits", len(answers), len(commits))
	}
	return answers, err
}

// take picks the leader's group from the queue: at most one commit of a run, since a vehicle that
// was given up may still be sending.
func (c *committer) take(leader *pending) []*pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	group := []*pending{leader}
	runs := map[string]bool{leader.commit.Document.ID: true}
	rest := c.nobody[:0]
	for _, p := range c.queue {
		if id := p.commit.Document.ID; len(group) < groupLimit && !runs[id] {
			runs[id] = true
			group = append(group, p)
		} else {
			rest = append(rest, p)
		}
	}
	clear(c.queue)
	c.queue, c.nobody = rest, c.queue
	return group
}

// leave hands the lane to the first that waits.
func (c *committer) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		c.lanes--
		return
	}
	next := c.queue[0]
	c.queue = append(c.queue[:0], c.queue[1:]...)
	next.turn.Set()
}
