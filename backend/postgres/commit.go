package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

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
	return s.commit(ctx, k)
}

func (s *Store) commit(ctx context.Context, k *commit) (backend.Committed, error) {
	var answer backend.Committed
	err := s.try(ctx, "commit", always, func(db session) (err error) {
		// An event that another transaction inserted after the statement's snapshot shows as a
		// unique violation; the statement sees it the second time.
		for range 2 {
			if answer, err = k.run(ctx, db); code(err) != codeUniqueViolation {
				break
			}
		}
		return err
	})
	if err != nil {
		return backend.Committed{}, err
	}
	s.changed(k.c.Schedule, k.c.Now)
	return answer, nil
}

// commit is one Commit at work.
type commit struct {
	s        *Store
	scope    backend.Scope
	owner    backend.Owner // known when the store seals
	c        backend.Commit
	document []byte
	events   events
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
func (s *Store) ownerOf(ctx context.Context, scope backend.Scope, id string) (backend.Owner, error) {
	if owner, ok := scope.Owner(); ok {
		return owner, nil
	}
	var owner string
	err := s.view().one(ctx, "commit", stRunOwner, []any{&owner}, id)
	return ownerOf(owner), err
}

// leaves says how a schedule leaves the run: due (with a wake, or nil for now), or
// claimed, or neither.
func leaves(schedule checkpoint.Schedule) (wake *time.Time, due, retain bool) {
	switch schedule.Kind {
	case checkpoint.Retain:
		return nil, false, true
	case checkpoint.ReleaseNow:
		return nil, true, false
	case checkpoint.ReleaseAt:
		return &schedule.At, true, false
	case checkpoint.ReleaseExternal, checkpoint.ReleaseTerminal:
	}
	return nil, false, false
}

func (k *commit) run(ctx context.Context, db session) (backend.Committed, error) {
	d := k.c.Document
	wake, due, retain := leaves(k.c.Schedule)
	found, committed := false, false
	var graphID, graphHash, last string
	var started time.Time
	var seq int64
	var token *string
	overlap := false
	err := k.s.run(ctx, db, stCommit, func(r pgx.Rows) error {
		found = true
		return scan(r, &committed, &graphID, &graphHash, &started, &seq, &token, &last, &overlap)
	},
		append(append([]any{
			d.ID, ownerArg(k.scope), k.c.Expected, string(k.c.Token), d.Graph.ID, d.Graph.Hash, d.StartedAt, string(d.Status), d.UpdatedAt,
			instantOrNil(d.FinishedAt), wake, due, retain, string(k.c.Type), string(k.c.CheckpointID), k.document, k.s.or(k.c.Now),
		}, k.events.arguments()...), k.events.first())...)
	switch {
	case err != nil:
		return backend.Committed{}, err
	case !found:
		return backend.Committed{}, backend.ErrNotFound
	case committed:
		return backend.Committed{}, nil
	}
	// What was read was read under the row's lock, so nobody wrote in between (clause T4).
	identity := backend.Identity{Run: d.ID, Graph: graph.Ref{ID: graphID, Hash: graphHash}, StartedAt: claim.Instant(started)}
	if err := backend.CheckIdentity(identity, d); err != nil {
		return backend.Committed{}, err
	}
	if checkpoint.ID(last) == k.c.CheckpointID {
		return backend.Committed{Replayed: true}, nil
	}
	fence := checkpoint.Fence{Token: claim.Token(deref(token)), Seq: seq}
	if err := fence.Check(checkpoint.Fence{Token: k.c.Token, Seq: k.c.Expected}); err != nil {
		return backend.Committed{}, err
	}
	if overlap {
		if err := k.events.settle(ctx, k.s, db, k.owner, k.c.CheckpointID); err != nil {
			return backend.Committed{}, err
		}
		return k.run(ctx, db)
	}
	return backend.Committed{}, fmt.Errorf("belay: the commit of run %s matched its fence and changed nothing", d.ID)
}
