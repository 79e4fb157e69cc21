package postgres

import (
	"bytes"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

// SaveGraph implements backend.Graphs (clause G1).
func (s *Store) SaveGraph(ctx context.Context, owner backend.Owner, ref graph.Ref, raw value.Value) error {
	if err := backend.CheckSaveGraph(owner, ref, raw); err != nil {
		return err
	}
	return s.try(ctx, "save graph", always, func(db session) error { return s.saveGraph(ctx, db, owner, ref, raw) })
}

func (s *Store) saveGraph(ctx context.Context, db session, owner backend.Owner, ref graph.Ref, raw value.Value) error {
	// A version that another transaction published after the statement's snapshot is
	// neither saved nor seen by it; it is seen the second time.
	for range 2 {
		var saved bool
		var before []byte
		err := s.run(ctx, db, stGraphSave, func(r pgx.Rows) error { return scan(r, &saved, &before) },
			tenantOf(owner), ref.ID, ref.Hash, s.ownNow(), []byte(raw))
		switch {
		case err != nil:
			return err
		case saved:
			return nil
		case before == nil:
			continue
		case !bytes.Equal(before, raw):
			return backend.ErrGraphConflict
		}
		return nil
	}
	return nil
}

// FetchGraph implements backend.Graphs (clause G2).
func (s *Store) FetchGraph(ctx context.Context, owner backend.Owner, ref graph.Ref) (value.Value, error) {
	return s.view().FetchGraph(ctx, owner, ref)
}

// LatestGraph implements backend.Graphs (clause G3).
func (s *Store) LatestGraph(ctx context.Context, owner backend.Owner, id string) (backend.GraphVersion, error) {
	return s.view().LatestGraph(ctx, owner, id)
}

// GraphVersions implements backend.Graphs (clause G3).
func (s *Store) GraphVersions(ctx context.Context, owner backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error) {
	return s.view().GraphVersions(ctx, owner, id, q)
}

func (v view) FetchGraph(ctx context.Context, owner backend.Owner, ref graph.Ref) (value.Value, error) {
	if err := backend.CheckGraph(owner, ref); err != nil {
		return nil, err
	}
	var raw []byte
	if err := v.one(ctx, "fetch graph", stGraphFetch, []any{&raw}, tenantOf(owner), ref.ID, ref.Hash); err != nil {
		return nil, err
	}
	if err := backend.VerifyGraph(ref, raw); err != nil {
		return nil, err
	}
	return raw, nil
}

func (v view) LatestGraph(ctx context.Context, owner backend.Owner, id string) (backend.GraphVersion, error) {
	return backend.LatestVersion(v.GraphVersions(ctx, owner, id, backend.GraphQuery{Limit: 1}))
}

func (v view) GraphVersions(ctx context.Context, owner backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error) {
	q, err := backend.CheckGraphQuery(owner, id, q)
	if err != nil {
		return backend.GraphPage{}, err
	}
	at, hash := position(q.Before.PublishedAt, q.Before.Hash)
	var found []backend.GraphVersion
	begin := func() { found = nil }
	err = v.s.each(ctx, v, "list graph versions", stGraphList, begin, func(r pgx.Rows) error {
		var hash string
		var published time.Time
		if err := scan(r, &hash, &published); err != nil {
			return err
		}
		found = append(found, backend.GraphVersion{Ref: graph.Ref{ID: id, Hash: hash}, PublishedAt: published.UTC()})
		return nil
	}, tenantOf(owner), id, at, hash, int64(q.Limit+1))
	if err != nil {
		return backend.GraphPage{}, err
	}
	return backend.VersionPage(q, found), nil
}
