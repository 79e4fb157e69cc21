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
	events   []event
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
	return &operation{name: "commit", wakes: true, run: k.run}
}

func (k *commit) run(c *conn, careful bool) error {
	ctx := context.Background()
	k.answer = backend.Committed{}
	number, err := k.row(ctx, c)
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
	err = storeEvents(ctx, c, k.s.history(k.owner, k.c.Document.ID, number), k.events, careful)
	point("commit.events")
	return err
}

// row updates the run's row if the fence matches, and answers its number, 0 if not.
func (k *commit) row(ctx context.Context, c *conn) (number int64, err error) {
	d := k.c.Document
	now := k.s.clock.or(k.c.Now)
	first := func(r row) error { number = r.int(0); return nil }
	if k.c.Schedule.Kind == checkpoint.Retain {
		err = c.query(ctx, stCommitRetain, first,
			d.ID, ownerArg(k.scope), k.c.Expected, string(k.c.Token), string(k.c.CheckpointID),
			d.Graph.ID, d.Graph.Hash, d.StartedAt.UnixMicro(), string(d.Status), d.UpdatedAt.UnixMicro(),
			d.Seq, string(k.c.Type), now.UnixMicro())
		return number, err
	}
	after := k.c.Schedule.Apply(claim.State{}, now)
	err = c.query(ctx, stCommitRelease, first,
		d.ID, ownerArg(k.scope), k.c.Expected, string(k.c.Token), string(k.c.CheckpointID),
		d.Graph.ID, d.Graph.Hash, d.StartedAt.UnixMicro(), string(d.Status), d.UpdatedAt.UnixMicro(),
		d.Seq, string(k.c.Type), micros(after.Wake), micros(d.FinishedAt))
	return number, err
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

// storeEvents appends events. When careful it looks for each first: one that is stored
// already is no change, another one under its sequence is a conflict (clause E1).
func storeEvents(ctx context.Context, db session, h history, events []event, careful bool) error {
	if careful {
		var err error
		if events, err = missingEvents(ctx, db, h, events); err != nil {
			return err
		}
	}
	for len(events) > 0 {
		n := min(len(events), len(stEventInsert))
		inserts := stEventInsert
		if h.sealer != nil {
			inserts = stEventInsertSealed
		}
		args := make([]any, 0, 1+4*n)
		args = append(args, h.number)
		for _, e := range events[:n] {
			if args = append(args, e.seq, e.checkpoint, e.body); h.sealer != nil {
				args = append(args, e.digest)
			}
		}
		if _, err := db.exec(ctx, inserts[n-1], args...); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

func missingEvents(ctx context.Context, db session, h history, events []event) ([]event, error) {
	var missing []event
	for _, e := range events {
		found, same := false, false
		err := db.query(ctx, stEventBody, func(r row) (err error) {
			found = true
			same, err = backend.SameStoredEvent(h.sealer, h.owner, h.run, e.seq, r.blob(0), r.blob(1), e.plain)
			return err
		}, h.number, e.seq)
		switch {
		case err != nil:
			return nil, err
		case !found:
			missing = append(missing, e)
		case !same:
			return nil, backend.EventConflict(e.seq)
		}
	}
	return missing, nil
}
