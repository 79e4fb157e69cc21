package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// view is everything that reads, over the pool or over a host's transaction. Each read is
// one statement, and so sees one state.
type view struct {
	s  *Store
	tx session // nil: the pool
}

func (s *Store) view() view { return view{s: s} }

func (v view) read(ctx context.Context, op string, st statement, each func(pgx.Rows) error, args ...any) error {
	if v.tx != nil {
		return fail(op, v.s.run(ctx, v.tx, st, each, args...))
	}
	return v.s.try(ctx, op, always, func(db session) error { return v.s.run(ctx, db, st, each, args...) })
}

// one reads one row, ErrNotFound when there is none.
func (v view) one(ctx context.Context, op string, st statement, into []any, args ...any) error {
	found := false
	err := v.read(ctx, op, st, func(r pgx.Rows) error {
		found = true
		return scan(r, into...)
	}, args...)
	if err == nil && !found {
		err = backend.ErrNotFound
	}
	return err
}

// FetchRun implements backend.Runs (clause R4).
func (s *Store) FetchRun(ctx context.Context, scope backend.Scope, id string) (*run.Document, error) {
	return s.view().FetchRun(ctx, scope, id)
}

// InspectRun implements backend.Runs (clause R4).
func (s *Store) InspectRun(ctx context.Context, scope backend.Scope, id string) (backend.Info, error) {
	return s.view().InspectRun(ctx, scope, id)
}

// ListRuns implements backend.Runs (clause R5).
func (s *Store) ListRuns(ctx context.Context, scope backend.Scope, q backend.Query) (backend.Page, error) {
	return s.view().ListRuns(ctx, scope, q)
}

func (v view) FetchRun(ctx context.Context, scope backend.Scope, id string) (*run.Document, error) {
	if err := backend.CheckRun(scope, id); err != nil {
		return nil, err
	}
	var owner string
	var seq int64
	var body []byte
	if err := v.one(ctx, "fetch run", stRunFetch, []any{&owner, &seq, &body}, id, ownerArg(scope)); err != nil {
		return nil, err
	}
	return backend.OpenDocument(v.s.opts.Sealer, ownerOf(owner), id, seq, body)
}

func (v view) InspectRun(ctx context.Context, scope backend.Scope, id string) (backend.Info, error) {
	if err := backend.CheckRun(scope, id); err != nil {
		return backend.Info{}, err
	}
	var owner, kind, last string
	var wake, claimed, poisoned *time.Time
	var attempts, abandons int32
	var reason *string
	var seq int64
	var body []byte
	err := v.one(ctx, "inspect run", stRunInspect,
		[]any{&owner, &wake, &claimed, &attempts, &abandons, &poisoned, &reason, &kind, &last, &seq, &body}, id, ownerArg(scope))
	if err != nil {
		return backend.Info{}, err
	}
	d, err := backend.OpenDocument(v.s.opts.Sealer, ownerOf(owner), id, seq, body)
	if err != nil {
		return backend.Info{}, err
	}
	return backend.Info{
		Document: d, Owner: ownerOf(owner), Wake: stored(wake), ClaimedAt: stored(claimed), Attempts: int(attempts), Abandons: int(abandons),
		Poison: claim.Poison{At: stored(poisoned), Reason: deref(reason)}, Type: checkpoint.Type(kind), CheckpointID: checkpoint.ID(last),
	}, nil
}

func (v view) ListRuns(ctx context.Context, scope backend.Scope, q backend.Query) (backend.Page, error) {
	q, err := backend.CheckQuery(scope, q)
	if err != nil {
		return backend.Page{}, err
	}
	at, id := position(q.Before.StartedAt, q.Before.Run)
	var statuses []string
	for _, s := range q.Statuses {
		statuses = append(statuses, string(s))
	}
	args := []any{at, id, textOrNil(q.GraphID), textOrNil(q.GraphHash), statuses, int64(q.Limit + 1)}
	// Most runs are done: a page of them is soon full. Of the others there is an index.
	byStatus := len(q.Statuses) > 0 && !slices.Contains(q.Statuses, run.Done)
	st := stRunList
	if byStatus {
		st = stRunListByStatus
	}
	if owner, ok := scope.Owner(); ok {
		st, args = stRunListOfOwner, append(args, tenantOf(owner))
		if byStatus {
			st = stRunListByStatusOfOwner
		}
	}
	page := backend.Page{Next: q.Before}
	err = v.s.each(ctx, v, "list runs", st, func() { page.Runs = nil }, func(r pgx.Rows) error {
		one, err := scanSummary(r)
		page.Runs = append(page.Runs, one)
		return err
	}, args...)
	if err != nil {
		return backend.Page{}, err
	}
	if page.HasMore = len(page.Runs) > q.Limit; page.HasMore {
		page.Runs = page.Runs[:q.Limit]
	}
	if n := len(page.Runs); n > 0 {
		page.Next = backend.Cursor{StartedAt: page.Runs[n-1].StartedAt, Run: page.Runs[n-1].Run}
	}
	return page, nil
}

// each reads many rows; begin forgets those of an attempt that failed halfway.
func (s *Store) each(ctx context.Context, v view, op string, st statement, begin func(), each func(pgx.Rows) error, args ...any) error {
	if v.tx != nil {
		begin()
		return fail(op, s.run(ctx, v.tx, st, each, args...))
	}
	return s.try(ctx, op, always, func(db session) error {
		begin()
		return s.run(ctx, db, st, each, args...)
	})
}

func scanSummary(r pgx.Rows) (backend.Summary, error) {
	var one backend.Summary
	var owner, status string
	var finished, wake, claimed, poisoned *time.Time
	var attempts, abandons int32
	var reason *string
	err := scan(r, &one.Run, &owner, &one.Graph.ID, &one.Graph.Hash, &status, &one.Seq, &one.StartedAt, &one.UpdatedAt, &finished,
		&wake, &claimed, &attempts, &abandons, &poisoned, &reason)
	one.Owner, one.Status = ownerOf(owner), run.Status(status)
	one.StartedAt, one.UpdatedAt, one.FinishedAt = one.StartedAt.UTC(), one.UpdatedAt.UTC(), stored(finished)
	one.Wake, one.ClaimedAt, one.Attempts, one.Abandons = stored(wake), stored(claimed), int(attempts), int(abandons)
	one.Poison = claim.Poison{At: stored(poisoned), Reason: deref(reason)}
	return one, err
}

// position is a descending cursor as a pair of arguments. No instant stands before the
// newest; no name stands before everything at its instant, which is behind everything a
// microsecond later.
func position(at time.Time, name string) (*time.Time, string) {
	switch {
	case at.IsZero():
		return nil, ""
	case name == "":
		at = at.Add(time.Microsecond)
	}
	return &at, name
}

// FindRuns lists the ids, in their order, that begin with a prefix: at most limit of
// them, 1 to backend.MaxLimit. It is how a tool completes a shortened id.
func (s *Store) FindRuns(ctx context.Context, scope backend.Scope, prefix string, limit int) ([]string, error) {
	if err := backend.CheckRun(scope, prefix); err != nil {
		return nil, err
	}
	if limit < 1 || limit > backend.MaxLimit {
		return nil, &backend.ArgumentError{Argument: "limit", Reason: "must be 1 to 1000"}
	}
	var ids []string
	err := s.each(ctx, s.view(), "find runs", stRunFind, func() { ids = nil }, func(r pgx.Rows) error {
		var id string
		err := scan(r, &id)
		ids = append(ids, id)
		return err
	}, prefix, ownerArg(scope), int64(limit))
	if err != nil {
		return nil, err
	}
	return ids, nil
}
