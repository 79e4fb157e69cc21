package sqlite

import (
	"context"
	"fmt"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
)

// Commit implements backend.Runs (clauses T1, T2, T5).
func (s *Store) Commit(ctx context.Context, scope backend.Scope, c backend.Commit) (backend.Committed, error) {
	k, err := s.newCommit(ctx, scope, c)
	if err != nil {
		return backend.Committed{}, err
	}
	err = s.writer.do(ctx, k.operation())
	return k.answer, err
}

// Commits implements backend.Batches (clause T6).
func (s *Store) Commits(ctx context.Context, scope backend.Scope, cs []backend.Commit) []backend.CommitResult {
	results := make([]backend.CommitResult, len(cs))
	members := make([]*commit, len(cs))
	ops := make([]*operation, len(cs))
	for n := range cs {
		if members[n], results[n].Err = s.newCommit(ctx, scope, cs[n]); results[n].Err == nil {
			ops[n] = members[n].operation()
		}
	}
	s.doAll(ctx, ops, func(n int, err error) { results[n] = backend.CommitResult{Committed: members[n].answer, Err: err} })
	return results
}

// commit is one Commit at work.
type commit struct {
	s        *Store
	scope    backend.Scope
	owner    backend.Owner // known when the store seals
	c        backend.Commit
	document []byte
	events   []backend.EventRow
	answer   backend.Committed
}

func (s *Store) newCommit(ctx context.Context, scope backend.Scope, c backend.Commit) (*commit, error) {
	c, err := backend.CheckCommit(scope, c, s.opts.Limits)
	if err != nil {
		return nil, err
	}
	k := &commit{s: s, scope: scope, c: c}
	if s.opts.Sealer != nil {
		if k.owner, err = s.ownerOf(ctx, scope, c.Document.ID); err != nil {
			return nil, err
		}
	}
	k.document, k.events, err = s.encode(k.owner, c.Proposal, c.CheckpointID)
	return k, err
}

// ownerOf is whose run a commit is for, which what is sealed is bound to. It never changes (clause
// A8), and a run that has another owner by the time of the commit has another token, too.
func (s *Store) ownerOf(ctx context.Context, scope backend.Scope, id string) (owner backend.Owner, err error) {
	if owner, ok := scope.Owner(); ok {
		return owner, nil
	}
	err = s.view().one(ctx, "commit", stRunNumber, func(r row) error { owner = ownerOf(r.text(1)); return nil }, id, nil)
	return owner, err
}

func (k *commit) operation() *operation {
	return &operation{name: "commit", wakes: true, run: func(c *conn, _ bool) error { return k.run(c) }}
}

func (k *commit) run(c *conn) error {
	ctx := context.Background()
	k.answer = backend.Committed{}
	number, last, err := k.row(ctx, c)
	if err != nil {
		return err
	}
	if number == 0 {
		return k.classify(ctx, c)
	}
	point("commit.row")
	if _, err := c.exec(ctx, stDocumentUpdate, number, k.document); err != nil {
		return err
	}
	point("commit.document")
	err = k.s.history(k.owner, k.c.Document.ID, number).append(ctx, c, last, k.c.Proposal.Events, k.events, k.c.CheckpointID)
	point("commit.events")
	return err
}

// row updates the run's row if the fence matches, and answers its number, 0 if not, and its last event.
func (k *commit) row(ctx context.Context, c *conn) (number, last int64, err error) {
	d := k.c.Document
	now := k.s.clock.or(k.c.Now)
	first := func(r row) error { number, last = r.int(0), r.int(1); return nil }
	if k.c.Schedule.Kind == checkpoint.Retain {
		err = c.query(ctx, stCommitRetain, first,
			d.ID, ownerArg(k.scope), k.c.Expected, string(k.c.Token), string(k.c.CheckpointID),
			d.Graph.ID, d.Graph.Hash, d.StartedAt.UnixMicro(), string(d.Status), d.UpdatedAt.UnixMicro(),
			d.Seq, string(k.c.Type), now.UnixMicro())
		return number, last, err
	}
	after := k.c.Schedule.Apply(claim.State{}, now)
	err = c.query(ctx, stCommitRelease, first,
		d.ID, ownerArg(k.scope), k.c.Expected, string(k.c.Token), string(k.c.CheckpointID),
		d.Graph.ID, d.Graph.Hash, d.StartedAt.UnixMicro(), string(d.Status), d.UpdatedAt.UnixMicro(),
		d.Seq, string(k.c.Type), micros(after.Wake), micros(d.FinishedAt))
	return number, last, err
}

// classify says why the row was not updated, in the order of clause T1. It reads in the
// transaction of the update, so nobody wrote in between (clause T4).
func (k *commit) classify(ctx context.Context, c *conn) error {
	err := backend.ErrNotFound
	scanned := c.query(ctx, stCommitClassify, func(r row) error {
		if !k.scope.Sees(ownerOf(r.text(0))) {
			return nil
		}
		stored := backend.Identity{
			Run: k.c.Document.ID, Graph: graph.Ref{ID: r.text(1), Hash: r.text(2)}, StartedAt: r.instant(3),
		}
		if err = backend.CheckIdentity(stored, k.c.Document); err != nil {
			return nil
		}
		if checkpoint.ID(r.text(6)) == k.c.CheckpointID {
			k.answer.Replayed = true
			return nil
		}
		fence := checkpoint.Fence{Token: claim.Token(r.text(5)), Seq: r.int(4)}
		if err = fence.Check(checkpoint.Fence{Token: k.c.Token, Seq: k.c.Expected}); err == nil {
			err = fmt.Errorf("belay: the commit of run %s matched its fence and changed nothing", k.c.Document.ID)
		}
		return nil
	}, k.c.Document.ID)
	if scanned != nil {
		return scanned
	}
	return err
}
