package sqlite

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// reader lends sessions for reading: the store's pool, or the host's transaction.
type reader interface {
	// read lends a session for one statement.
	read(ctx context.Context, fn func(session) error) error
	// same lends a session on which every statement sees the same state.
	same(ctx context.Context, fn func(session) error) error
}

// view is everything that reads, over either.
type view struct {
	reader
	sealer backend.Sealer
}

type pool struct{ *readers }

func (p pool) read(ctx context.Context, fn func(session) error) error {
	return p.use(ctx, func(c *conn) error { return fn(c) })
}

func (p pool) same(ctx context.Context, fn func(session) error) error {
	return p.snapshot(ctx, func(c *conn) error { return fn(c) })
}

func (s *Store) view() view { return view{pool{s.readers}, s.opts.Sealer} }

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
	var owner backend.Owner
	var seq int64
	var body []byte
	err := v.one(ctx, "fetch run", stRunFetch, func(r row) error {
		owner, seq, body = ownerOf(r.text(0)), r.int(1), r.blob(2)
		return nil
	}, id, ownerArg(scope))
	if err != nil {
		return nil, err
	}
	return backend.OpenDocument(v.sealer, owner, id, seq, body)
}

func (v view) InspectRun(ctx context.Context, scope backend.Scope, id string) (backend.Info, error) {
	if err := backend.CheckRun(scope, id); err != nil {
		return backend.Info{}, err
	}
	var info backend.Info
	var seq int64
	var body []byte
	err := v.one(ctx, "inspect run", stRunInspect, func(r row) error {
		info = backend.Info{
			Owner: ownerOf(r.text(0)), Wake: r.instant(1), ClaimedAt: r.instant(2),
			Attempts: int(r.int(3)), Abandons: int(r.int(4)), Poison: claim.Poison{At: r.instant(5), Reason: r.text(6)},
			Type: checkpoint.Type(r.text(7)), CheckpointID: checkpoint.ID(r.text(8)),
		}
		seq, body = r.int(9), r.blob(10)
		return nil
	}, id, ownerArg(scope))
	if err != nil {
		return backend.Info{}, err
	}
	if info.Document, err = backend.OpenDocument(v.sealer, info.Owner, id, seq, body); err != nil {
		return backend.Info{}, err
	}
	return info, nil
}

// one reads one row, ErrNotFound when there is none.
func (v view) one(ctx context.Context, op string, st *statement, each func(row) error, args ...any) error {
	found := false
	err := v.read(ctx, func(db session) error {
		return db.query(ctx, st, func(r row) error {
			found = true
			return each(r)
		}, args...)
	})
	if err == nil && !found {
		return backend.ErrNotFound
	}
	return fail(op, err, false)
}

func (v view) ListRuns(ctx context.Context, scope backend.Scope, q backend.Query) (backend.Page, error) {
	q, err := backend.CheckQuery(scope, q)
	if err != nil {
		return backend.Page{}, err
	}
	before, id := position(q.Before.StartedAt, q.Before.Run)
	args := []any{before, id, q.GraphID, q.GraphHash, statusList(q.Statuses), int64(q.Limit + 1)}
	st := stRunList
	switch owner, ok := scope.Owner(); {
	case isLive(q.Statuses):
		st, args = stRunListLive, append(args, ownerArg(scope))
	case ok:
		st, args = stRunListOfOwner, append(args, tenantOf(owner))
	}
	page := backend.Page{Next: q.Before}
	err = v.read(ctx, func(db session) error {
		return db.query(ctx, st, func(r row) error {
			page.Runs = append(page.Runs, scanSummary(r))
			return nil
		}, args...)
	})
	if err != nil {
		return backend.Page{}, fail("list runs", err, false)
	}
	if page.HasMore = len(page.Runs) > q.Limit; page.HasMore {
		page.Runs = page.Runs[:q.Limit]
	}
	if n := len(page.Runs); n > 0 {
		page.Next = backend.Cursor{StartedAt: page.Runs[n-1].StartedAt, Run: page.Runs[n-1].Run}
	}
	return page, nil
}

// isLive reports whether a filter admits only runs that have not finished.
func isLive(statuses []run.Status) bool {
	return len(statuses) > 0 && !slices.ContainsFunc(statuses, run.Status.Terminal)
}

func scanSummary(r row) backend.Summary {
	return backend.Summary{
		Run: r.text(0), Owner: ownerOf(r.text(1)), Graph: graph.Ref{ID: r.text(2), Hash: r.text(3)}, Status: run.Status(r.text(4)),
		Seq: r.int(5), StartedAt: r.instant(6), UpdatedAt: r.instant(7), FinishedAt: r.instant(8), Wake: r.instant(9),
		ClaimedAt: r.instant(10), Attempts: int(r.int(11)), Abandons: int(r.int(12)),
		Poison: claim.Poison{At: r.instant(13), Reason: r.text(14)},
	}
}

// position is a descending cursor as a pair of arguments. No instant stands before the
// newest; no name stands before everything at its instant, which a blob does, since SQLite
// orders every text before every blob.
func position(at time.Time, name string) (any, any) {
	const newest = int64(1<<63 - 1)
	switch {
	case at.IsZero():
		return newest, []byte{}
	case name == "":
		return at.UnixMicro(), []byte{}
	}
	return at.UnixMicro(), name
}

// statusList is ",a,b,", and empty for no filter.
func statusList(statuses []run.Status) string {
	if len(statuses) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteByte(',')
	for _, s := range statuses {
		b.WriteString(string(s) + ",")
	}
	return b.String()
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
	err := s.readers.use(ctx, func(c *conn) error {
		// No UTF-8 text has the byte 0xff, so this is behind every id with the prefix.
		return c.query(ctx, stRunFind, func(r row) error {
			ids = append(ids, r.text(0))
			return nil
		}, prefix, prefix+"\xff", ownerArg(scope), int64(limit))
	})
	return ids, fail("find runs", err, false)
}
