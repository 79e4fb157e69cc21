package sqlite

import (
	"bytes"
	"context"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

// SaveGraph implements backend.Graphs (clause G1).
func (s *Store) SaveGraph(ctx context.Context, owner backend.Owner, ref graph.Ref, raw value.Value) error {
	if err := backend.CheckSaveGraph(owner, ref, raw); err != nil {
		return err
	}
	return s.writer.do(ctx, &operation{name: "save graph", run: func(c *conn, _ bool) error {
		return saveGraph(context.Background(), c, s.clock, owner, ref, raw)
	}})
}

func saveGraph(ctx context.Context, db session, clock clock, owner backend.Owner, ref graph.Ref, raw value.Value) error {
	n, err := db.exec(ctx, stGraphSave, tenantOf(owner), ref.ID, ref.Hash, clock.read().UnixMicro(), []byte(raw))
	if err != nil || n == 1 {
		return err
	}
	return db.query(ctx, stGraphFetch, func(r row) error {
		if !bytes.Equal(r.blob(0), raw) {
			return backend.ErrGraphConflict
		}
		return nil
	}, tenantOf(owner), ref.ID, ref.Hash)
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
	var raw value.Value
	err := v.one(ctx, "fetch graph", stGraphFetch, func(r row) error { raw = r.blob(0); return nil }, tenantOf(owner), ref.ID, ref.Hash)
	if err != nil {
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
	err = v.read(ctx, func(db session) error {
		return db.query(ctx, stGraphList, func(r row) error {
			found = append(found, backend.GraphVersion{Ref: graph.Ref{ID: id, Hash: r.text(0)}, PublishedAt: r.instant(1)})
			return nil
		}, tenantOf(owner), id, at, hash, int64(q.Limit+1))
	})
	if err != nil {
		return backend.GraphPage{}, fail("list graph versions", err, false)
	}
	return backend.VersionPage(q, found), nil
}
