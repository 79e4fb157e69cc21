package kv

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/run"
)

// eventKey is where an event stands; those of a run stand together, in their order.
func eventKey(id string, seq int64) []byte { return append(key(id), ordered(seq)...) }

// eventSeq is the sequence in a key.
func eventSeq(k []byte) int64 { return int64(binary.BigEndian.Uint64(k[len(k)-8:]) ^ 1<<63) }

func (t *tx) Append(_ context.Context, s backend.Scope, a backend.ApartAppend) error {
	if _, err := t.visible(s, a.Run); err != nil {
		return err
	}
	events := t.Bucket(eventsBucket)
	for _, e := range a.Events {
		raw, err := run.EncodeEvent(e)
		if err != nil {
			return err
		}
		k := eventKey(a.Run, e.Seq)
		stored := events.Get(k)
		if stored != nil && !bytes.Equal(stored, raw) {
			return backend.EventConflict(e.Seq)
		}
		if err := events.Put(k, raw); err != nil {
			return err
		}
	}
	return t.Bucket(commitsBucket).Put(key(a.Run, string(a.CheckpointID)), ordered(a.Seq))
}

func (t *tx) CommitSeq(_ context.Context, s backend.Scope, id string, commit checkpoint.ID) (int64, error) {
	if _, err := t.visible(s, id); err != nil {
		return 0, err
	}
	raw := t.Bucket(commitsBucket).Get(key(id, string(commit)))
	if raw == nil {
		return 0, backend.ErrNotFound
	}
	return eventSeq(raw), nil
}

func readEvent(id string, k, raw []byte) (run.Event, error) {
	e, err := run.DecodeEvent(raw)
	if err != nil {
		return run.Event{}, &backend.CorruptError{Run: id, What: fmt.Sprintf("event %d", eventSeq(k)), Err: err}
	}
	return e, nil
}

func (t *tx) FetchEvent(_ context.Context, s backend.Scope, id string, seq int64) (run.Event, error) {
	if _, err := t.visible(s, id); err != nil {
		return run.Event{}, err
	}
	k := eventKey(id, seq)
	raw := t.Bucket(eventsBucket).Get(k)
	if raw == nil {
		return run.Event{}, backend.ErrNotFound
	}
	return readEvent(id, k, raw)
}

// last is the key and the bytes of the last event, nil when there is none.
func (t *tx) last(id string) (k, raw []byte) {
	c := t.Bucket(eventsBucket).Cursor()
	if k, _ = c.Seek(append(key(id), 0xff)); k == nil {
		k, raw = c.Last()
	} else {
		k, raw = c.Prev()
	}
	if !bytes.HasPrefix(k, key(id)) {
		return nil, nil
	}
	return k, raw
}

func (t *tx) LatestEvent(_ context.Context, s backend.Scope, id string) (*run.Event, error) {
	if _, err := t.visible(s, id); err != nil {
		return nil, err
	}
	k, raw := t.last(id)
	if k == nil {
		return nil, nil
	}
	e, err := readEvent(id, k, raw)
	if err != nil {
		return nil, err
	}
	return &e, nil
}

func (t *tx) ListEvents(_ context.Context, s backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
	if _, err := t.visible(s, id); err != nil {
		return backend.EventPage{}, err
	}
	page := backend.EventPage{Next: q.After}
	c := t.Bucket(eventsBucket).Cursor()
	if k, _ := c.Seek(key(id)); bytes.HasPrefix(k, key(id)) {
		page.Oldest = eventSeq(k)
		last, _ := t.last(id)
		page.Latest = eventSeq(last)
	}
	for k, raw := c.Seek(eventKey(id, q.After)); bytes.HasPrefix(k, key(id)); k, raw = c.Next() {
		if eventSeq(k) == q.After {
			continue
		}
		if len(page.Events) == q.Limit {
			page.HasMore = true
			break
		}
		e, err := readEvent(id, k, raw)
		if err != nil {
			return backend.EventPage{}, err
		}
		page.Events = append(page.Events, e)
		page.Next = e.Seq
	}
	return page, nil
}
