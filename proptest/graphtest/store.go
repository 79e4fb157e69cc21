package graphtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
)

// trouble is what happens at one commit.
type trouble string

const (
	noTrouble   trouble = ""
	crashBefore trouble = "the process dies before"
	crashAfter  trouble = "the process dies after"
	replyLost   trouble = "the reply is lost of"
)

// process is the store as one process sees it: once that has died, nothing it asks for happens.
type process struct {
	backend.Store
	history *history

	mu   sync.Mutex
	dead bool
}

var errDead = &backend.InfrastructureError{Op: "graphtest", Nature: backend.Permanent, Err: errors.New("the process has died: injected by graphtest")}

func (p *process) Features() backend.Features {
	return backend.Features{ClaimFilter: true}
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

func (p *process) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

func (p *process) ClaimDue(ctx context.Context, policy claim.Policy) (claim.Batch, error) {
	if p.isDead() {
		return claim.Batch{}, errDead
	}
	return p.Store.ClaimDue(ctx, policy)
}

func (p *process) RefreshClaim(ctx context.Context, id string, token claim.Token, now time.Time) error {
	if p.isDead() {
		return errDead
	}
	return p.Store.RefreshClaim(ctx, id, token, now)
}

func (p *process) ReleaseClaim(ctx context.Context, id string, token claim.Token, policy claim.ReleasePolicy) error {
	if p.isDead() {
		return errDead
	}
	return p.Store.ReleaseClaim(ctx, id, token, policy)
}

func (p *process) AbandonClaim(ctx context.Context, id string, token claim.Token, policy claim.AbandonPolicy) (claim.Disposition, error) {
	if p.isDead() {
		return claim.Stale, errDead
	}
	return p.Store.AbandonClaim(ctx, id, token, policy)
}

func (p *process) MutateRun(ctx context.Context, scope backend.Scope, id string, commit checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
	if p.isDead() {
		return backend.Mutated{}, errDead
	}
	return p.Store.MutateRun(ctx, scope, id, commit, fn)
}

func (p *process) Commit(ctx context.Context, scope backend.Scope, c backend.Commit) (backend.Committed, error) {
	if p.isDead() {
		return backend.Committed{}, errDead
	}
	n, what := p.history.commit()
	if what == crashBefore {
		p.history.say("%s commit %d", what, n)
		p.die()
		return backend.Committed{}, errDead
	}
	done, err := p.Store.Commit(ctx, scope, c)
	if err != nil {
		p.history.say("commit %d is refused: %v", n, err)
		return done, err
	}
	p.history.say("commit %d: sequence %d, %s", n, c.Document.Seq, c.Type)
	switch what {
	case crashAfter:
		p.history.say("%s commit %d", what, n)
		p.die()
		return backend.Committed{}, errDead
	case replyLost:
		p.history.say("%s commit %d", what, n)
		p.history.mu.Lock()
		p.history.pausing = true
		p.history.mu.Unlock()
		return backend.Committed{}, &backend.InfrastructureError{Op: "commit", Nature: backend.Unknown, Err: errors.New("the reply is lost: injected by graphtest")}
	}
	return done, nil
}
