// Package sealtest proves what a store with a Sealer promises, the same for every backend: nothing
// of a payload is readable where it is stored, what was moved or changed does not open, and keys
// rotate while what is stored stays as it is.
package sealtest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/seal"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// Data is one place where runs are stored, and a way past every check of the store.
type Data struct {
	// Open opens another store on it. A nil Sealer is none.
	Open func(t *testing.T, s backend.Sealer) backend.Store
	// What one row holds, and how to write it.
	Document      func(t *testing.T, run string) []byte
	WriteDocument func(t *testing.T, run string, stored []byte)
	Event         func(t *testing.T, run string, seq int64) (stored, digest []byte)
	WriteEvent    func(t *testing.T, run string, seq int64, stored, digest []byte)
	// Dump is every byte that is stored.
	Dump func(t *testing.T) []byte
}

// Run runs every test, each on data of its own.
func Run(t *testing.T, fresh func(t *testing.T) Data) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, d Data)
	}{
		{"NothingIsReadable", nothingIsReadable},
		{"WhatWasChangedDoesNotOpen", whatWasChangedDoesNotOpen},
		{"KeysRotate", keysRotate},
		{"PlainAndSealedStandBesideEachOther", plainAndSealed},
		{"EqualEventsAreToldUnderEveryKey", equalEvents},
		{"AFailingSealerIsATypedError", failingSealers},
		{"AProcessWithoutTheKeyHandsTheRunBack", handedBack},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, fresh(t)) })
	}
}

// Key is a key for tests.
func Key(id string) []byte {
	sum := sha256.Sum256([]byte(id))
	return sum[:]
}

// Keys is a Sealer of package seal that has the keys, and seals with the first one.
func Keys(t interface{ Fatalf(string, ...any) }, ids ...string) backend.Sealer {
	return keys(t, ids[0], ids...)
}

func keys(t interface{ Fatalf(string, ...any) }, current string, ids ...string) backend.Sealer {
	known := make(map[string][]byte)
	for _, id := range ids {
		known[id] = Key(id)
	}
	s, err := seal.AESGCM(known, current)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return s
}

// Rotating seals each payload with another key, in turn, and with the key "" not at all.
func Rotating(t interface{ Fatalf(string, ...any) }, ids ...string) backend.Sealer {
	known := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" })
	return &rotating{Sealer: Keys(t, known...), ids: ids}
}

type rotating struct {
	backend.Sealer
	ids []string
	n   atomic.Uint64
}

func (r *rotating) Key() string { return r.ids[r.n.Add(1)%uint64(len(r.ids))] }

var (
	began      = time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC)
	proof      = value.Value(`{"id":"proof"}`)
	tenantless = backend.Tenantless()
	acme       = backend.Tenant("acme")
)

func ref() graph.Ref { return graph.Ref{ID: "proof", Hash: value.Hash(proof)} }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// draft is the first commit of a run, claimed.
func draft(id string) backend.Initialization {
	d := &run.Document{
		ID: id, Graph: ref(), Status: run.Running, Seq: 1, EventSeq: 2, StartedAt: began, UpdatedAt: began,
		State: []run.Channel{{Name: "name", Value: value.Value(`"a secret of the run"`), Version: 1}},
	}
	return backend.Initialization{
		Proposal: run.Proposal{
			Document: d, Type: checkpoint.RunInitialized, Schedule: checkpoint.Schedule{Kind: checkpoint.Retain}, Now: began,
			Events: []run.Event{{Run: id, Seq: 1, Type: run.EventRunInitialized, At: began}, closing(id, 2, 1, checkpoint.RunInitialized)},
		},
		CheckpointID: checkpoint.ID("insert of " + id), Claim: &backend.StartClaim{TTL: time.Minute},
	}
}

func closing(id string, seq, commit int64, kind checkpoint.Type) run.Event {
	return run.Event{Run: id, Seq: seq, Type: run.EventCheckpointCommitted, At: began, Checkpoint: kind, Commit: commit}
}

func insert(t *testing.T, s backend.Store, owner backend.Owner, id string) (*run.Document, claim.Token) {
	t.Helper()
	must(t, s.SaveGraph(t.Context(), owner, ref(), proof))
	in := draft(id)
	inserted, err := s.InsertRun(t.Context(), owner, in)
	must(t, err)
	return in.Document, inserted.Lease.Token
}

// step is the next commit of a run, with its own events and those given.
func step(d *run.Document, token claim.Token, events ...run.Event) backend.Commit {
	next := *d
	next.Seq, next.EventSeq = d.Seq+1, d.EventSeq+1
	return backend.Commit{
		Proposal: run.Proposal{
			Expected: d.Seq, Document: &next, Type: checkpoint.StepCommitted, Schedule: checkpoint.Schedule{Kind: checkpoint.Retain}, Now: began,
			Events: append(events, closing(d.ID, next.EventSeq, next.Seq, checkpoint.StepCommitted)),
		},
		CheckpointID: checkpoint.ID(fmt.Sprintf("commit %d of %s", next.Seq, d.ID)), Token: token,
	}
}

const order = `
id: order
inputs:
  name: {schema: {type: string}, required: true}
fields:
  approved: {schema: {type: string}}
  receipt: {schema: {type: string}}
nodes:
  approve:
    use: ask
    config: {question: "For ${name}?", into: approved}
    reads: {name: name}
    writes: {approved: approved}
  charge: {use: charge}
edges:
  start: {from: $start, to: approve}
  asked: {from: approve, to: charge}
  end:   {from: charge, to: $finish}
outputs:
  receipt: {from: receipt}
`

type charge struct {
	Name     string `json:"name"`
	Approved string `json:"approved"`
}

type receipt struct {
	Receipt string `json:"receipt"`
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func nodes() *node.Registry {
	return std.Register(node.NewRegistry()).Add(node.Of("charge", 1, func(_ context.Context, in charge) (receipt, error) {
		if in.Approved == "marker-refuse" {
			return receipt{}, node.Permanent(errors.New("marker-failure"))
		}
		return receipt{"marker-output"}, nil
	}))
}

// engine drives the runs of a store, with the graph published.
func engine(t *testing.T, s backend.Store) (*belay.Engine, belay.GraphRef) {
	t.Helper()
	e, err := belay.New(belay.Config{Backend: s, Nodes: nodes(), Logger: quiet, AbandonBackoff: time.Millisecond})
	must(t, err)
	doc, err := graph.ParseYAML([]byte(order))
	must(t, err)
	published, err := e.Publish(t.Context(), doc)
	must(t, err)
	return e, published
}

// orders runs two orders to their ends: one is done, one fails.
func orders(t *testing.T, s backend.Store) {
	t.Helper()
	e, published := engine(t, s)
	for id, answer := range map[string]string{"good": "marker-answer", "bad": "marker-refuse"} {
		_, err := e.Start(t.Context(), published, map[string]string{"name": "marker-input"}, belay.StartOptions{
			ID: id, Key: "key-" + id, Metadata: map[string]string{"who": "marker-metadata"},
		})
		must(t, err)
		drain(t, e)
		r, err := e.Inspect(t.Context(), id)
		must(t, err)
		_, err = e.Resolve(t.Context(), id, r.OpenInterrupts()[0].ID, answer)
		must(t, err)
		drain(t, e)
	}
	for id, status := range map[string]run.Status{"good": run.Done, "bad": run.Failed} {
		r, err := e.Inspect(t.Context(), id)
		must(t, err)
		if r.Status != status {
			t.Fatalf("%s is %s, not %s", id, r.Status, status)
		}
	}
}

func drain(t *testing.T, e *belay.Engine) belay.Drained {
	t.Helper()
	done, err := e.Drain(t.Context(), belay.DrainOptions{})
	must(t, err)
	return done
}
