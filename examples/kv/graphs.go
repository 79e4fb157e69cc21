package kv

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/value"
)

func (t *tx) saveGraph(o backend.Owner, ref graph.Ref, raw value.Value) error {
	k := key(tenantOf(o), ref.ID, ref.Hash)
	if stored := t.Bucket(graphsBucket).Get(k); stored != nil {
		if !bytes.Equal(stored[8:], raw) {
			return backend.ErrGraphConflict
		}
		return nil
	}
	return t.Bucket(graphsBucket).Put(k, append(ordered(t.now.UnixMicro()), raw...))
}

func (t *tx) fetchGraph(o backend.Owner, ref graph.Ref) (value.Value, error) {
	stored := t.Bucket(graphsBucket).Get(key(tenantOf(o), ref.ID, ref.Hash))
	if stored == nil {
		return nil, backend.ErrNotFound
	}
	return bytes.Clone(stored[8:]), nil
}

func (t *tx) graphVersions(o backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error) {
	var versions []backend.GraphVersion
	prefix := key(tenantOf(o), id)
	c := t.Bucket(graphsBucket).Cursor()
	for k, stored := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, stored = c.Next() {
		versions = append(versions, backend.GraphVersion{
			Ref:         graph.Ref{ID: id, Hash: string(k[len(prefix) : len(k)-1])},
			PublishedAt: time.UnixMicro(int64(binary.BigEndian.Uint64(stored) ^ 1<<63)).UTC(),
		})
	}
	slices.SortFunc(versions, func(a, b backend.GraphVersion) int {
		return cmp.Or(b.PublishedAt.Compare(a.PublishedAt), strings.Compare(b.Ref.Hash, a.Ref.Hash))
	})
	page := backend.GraphPage{Next: q.Before}
	for _, v := range versions {
		if b := q.Before; b != (backend.GraphCursor{}) && cmp.Or(v.PublishedAt.Compare(b.PublishedAt), strings.Compare(v.Ref.Hash, b.Hash)) >= 0 {
			continue
		}
		if len(page.Versions) == q.Limit {
			page.HasMore = true
			break
		}
		page.Versions = append(page.Versions, v)
		page.Next = backend.GraphCursor{PublishedAt: v.PublishedAt, Hash: v.Ref.Hash}
	}
	return page, nil
}
