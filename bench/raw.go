package main

import (
	"context"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/run"
)

const (
	// rawLanes and rawGroup are how the raw programs work: so many at once, each with so many runs a
	// statement or transaction. belay's committer has the same bounds.
	rawLanes = 4
	rawGroup = 100
)

// script is what one run of a chain writes, taken from a real one: the raw programs write the same
// bytes, and do nothing else.
type script struct {
	start, end []byte
	// events are those of the start, then those of each commit.
	events [][]recorded
}

// recorded is one event. The last of a commit closes it and bears the commit's id.
type recorded struct {
	seq    int64
	body   []byte
	closes bool
}

// record runs a chain once, in memory.
func record(ctx context.Context, nodes int, payload string) (*script, error) {
	store := memory.New(memory.Options{})
	defer store.Close()
	b, err := newBelay(ctx, store, 1, nodes, 1)
	if err != nil {
		return nil, err
	}
	r, err := b.engine.Start(ctx, b.ref, input{Payload: payload}, belay.StartOptions{})
	if err != nil {
		return nil, err
	}
	var s script
	if s.start, err = run.Encode(r.Document); err != nil {
		return nil, err
	}
	if err := b.drain(ctx); err != nil {
		return nil, err
	}
	end, err := b.engine.Fetch(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if s.end, err = run.Encode(end); err != nil {
		return nil, err
	}
	page, err := b.engine.Events(ctx, r.ID, backend.EventQuery{Limit: backend.MaxLimit})
	if err != nil {
		return nil, err
	}
	var commit []recorded
	for _, event := range page.Events {
		body, err := run.EncodeEvent(event)
		if err != nil {
			return nil, err
		}
		closes := event.Type == run.EventCheckpointCommitted
		if commit = append(commit, recorded{seq: event.Seq, body: body, closes: closes}); closes {
			s.events, commit = append(s.events, commit), nil
		}
	}
	return &s, nil
}
