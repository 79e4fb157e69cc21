package memory_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// operations are all there are, each with arguments that are in order.
func operations(s *memory.Store, ref graph.Ref) map[string]func(ctx context.Context) error {
	sys, none := backend.System(), backend.Tenantless()
	in := initial("a", ref, epoch)
	return map[string]func(ctx context.Context) error{
		"InsertRun":  func(ctx context.Context) error { _, err := s.InsertRun(ctx, none, in); return err },
		"InsertRuns": func(ctx context.Context) error { return s.InsertRuns(ctx, none, []backend.Initialization{in})[0].Err },
		"FetchRun":   func(ctx context.Context) error { _, err := s.FetchRun(ctx, sys, "a"); return err },
		"InspectRun": func(ctx context.Context) error { _, err := s.InspectRun(ctx, sys, "a"); return err },
		"ListRuns":   func(ctx context.Context) error { _, err := s.ListRuns(ctx, sys, backend.Query{Limit: 1}); return err },
		"ClaimDue":   func(ctx context.Context) error { _, err := s.ClaimDue(ctx, policy(epoch, 1)); return err },
		"ClaimDueDocuments": func(ctx context.Context) error {
			_, err := s.ClaimDueDocuments(ctx, policy(epoch, 1))
			return err
		},
		"RefreshClaim": func(ctx context.Context) error { return s.RefreshClaim(ctx, "a", "t", epoch) },
		"RefreshClaims": func(ctx context.Context) error {
			return s.RefreshClaims(ctx, []backend.Held{{Run: "a", Token: "t"}}, epoch)[0]
		},
		"ReleaseClaim": func(ctx context.Context) error { return s.ReleaseClaim(ctx, "a", "t", claim.ReleasePolicy{}) },
		"AbandonClaim": func(ctx context.Context) error {
			_, err := s.AbandonClaim(ctx, "a", "t", claim.AbandonPolicy{MaxAbandons: 1})
			return err
		},
		"RetryPoisonedRun": func(ctx context.Context) error { return s.RetryPoisonedRun(ctx, sys, "a", epoch) },
		"Commit": func(ctx context.Context) error {
			_, err := s.Commit(ctx, sys, completion(in.Document, "t", epoch))
			return err
		},
		"Commits": func(ctx context.Context) error {
			return s.Commits(ctx, sys, []backend.Commit{completion(in.Document, "t", epoch)})[0].Err
		},
		"MutateRun":   func(ctx context.Context) error { _, err := s.MutateRun(ctx, sys, "a", "c", cancel); return err },
		"FetchEvent":  func(ctx context.Context) error { _, err := s.FetchEvent(ctx, sys, "a", 1); return err },
		"LatestEvent": func(ctx context.Context) error { _, err := s.LatestEvent(ctx, sys, "a"); return err },
		"ListEvents": func(ctx context.Context) error {
			_, err := s.ListEvents(ctx, sys, "a", backend.EventQuery{Limit: 1})
			return err
		},
		"SaveGraph":   func(ctx context.Context) error { return s.SaveGraph(ctx, none, ref, value.Value(`{"id":"g"}`)) },
		"FetchGraph":  func(ctx context.Context) error { _, err := s.FetchGraph(ctx, none, ref); return err },
		"LatestGraph": func(ctx context.Context) error { _, err := s.LatestGraph(ctx, none, "g"); return err },
		"GraphVersions": func(ctx context.Context) error {
			_, err := s.GraphVersions(ctx, none, "g", backend.GraphQuery{Limit: 1})
			return err
		},
		"Subscribe": func(ctx context.Context) error { _, err := s.Subscribe(ctx); return err },
		"Now":       func(ctx context.Context) error { _, err := s.Now(ctx); return err },
		"Prune": func(ctx context.Context) error {
			_, err := s.Prune(ctx, backend.PrunePolicy{Before: epoch, Limit: 1})
			return err
		},
	}
}

func TestAClosedStoreRefusesEverything(t *testing.T) {
	s := memory.New(memory.Options{})
	ref := publish(t, s, backend.Tenantless(), "g")
	must(t, s.Close())
	must(t, s.Close())
	for name, op := range operations(s, ref) {
		if err := op(t.Context()); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("%s answered %v", name, err)
		}
	}
}

func TestAnEndedContextStopsEverythingBeforeItBegins(t *testing.T) {
	s := memory.New(memory.Options{})
	ref := publish(t, s, backend.Tenantless(), "g")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, op := range operations(s, ref) {
		if err := op(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s answered %v", name, err)
		}
	}
	page, err := s.ListRuns(t.Context(), backend.System(), backend.Query{Limit: 1})
	if err != nil || len(page.Runs) != 0 {
		t.Errorf("something was stored: %+v, %v", page, err)
	}
}

func TestWaitingForALockedRunEndsWithTheContext(t *testing.T) {
	s := memory.New(memory.Options{})
	ref := publish(t, s, backend.Tenantless(), "g")
	fill(t, s, backend.Tenantless(), ref, 1)
	page, err := s.ListRuns(t.Context(), backend.System(), backend.Query{Limit: 1})
	must(t, err)
	id := page.Runs[0].Run
	unlock, err := s.LockRun(t.Context(), id)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.RefreshClaim(ctx, id, "t", epoch); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("refreshing a locked run answered %v", err)
	}
	unlock()
	if err := s.RefreshClaim(t.Context(), id, "t", epoch); !errors.Is(err, backend.ErrClaimLost) {
		t.Errorf("refreshing the unlocked run answered %v", err)
	}
}

func TestReadsDoNotWaitForWriters(t *testing.T) {
	s := memory.New(memory.Options{})
	ref := publish(t, s, backend.Tenantless(), "g")
	for id := range fill(t, s, backend.Tenantless(), ref, 1) {
		unlock, err := s.LockRun(t.Context(), id)
		must(t, err)
		defer unlock()
		_, err = s.InspectRun(t.Context(), backend.System(), id)
		must(t, err)
		_, err = s.ListEvents(t.Context(), backend.System(), id, backend.EventQuery{Limit: 1})
		must(t, err)
		page, err := s.ListRuns(t.Context(), backend.System(), backend.Query{Limit: 1})
		if err != nil || len(page.Runs) != 1 {
			t.Errorf("the list has %d runs, %v", len(page.Runs), err)
		}
	}
}

func TestWhatAListHandsOutIsTheCallers(t *testing.T) {
	s := memory.New(memory.Options{})
	raw := value.Value(`{"id":"g"}`)
	ref := graph.Ref{ID: "g", Hash: value.Hash(raw)}
	must(t, s.SaveGraph(t.Context(), backend.Tenantless(), ref, raw))
	for id := range fill(t, s, backend.Tenantless(), ref, 1) {
		for range 2 {
			events, err := s.ListEvents(t.Context(), backend.System(), id, backend.EventQuery{Limit: 10})
			must(t, err)
			if len(events.Events) != 2 || events.Events[0].Type != run.EventRunInitialized {
				t.Fatalf("the events are %+v", events)
			}
			events.Events[0], events.Events[1] = run.Event{}, run.Event{}
			_ = append(events.Events[:1], run.Event{})
			latest, err := s.LatestEvent(t.Context(), backend.System(), id)
			must(t, err)
			*latest = run.Event{}

			got, err := s.FetchGraph(t.Context(), backend.Tenantless(), ref)
			if err != nil || !bytes.Equal(got, []byte(`{"id":"g"}`)) {
				t.Fatalf("the graph is %s, %v", got, err)
			}
			clear(got)
			clear(raw)
		}
	}
}

func TestX5ValuesCoalesceAndTheChannelEndsWithTheStore(t *testing.T) {
	s := memory.New(memory.Options{})
	ref := publish(t, s, backend.Tenantless(), "g")
	woken, err := s.Subscribe(t.Context())
	must(t, err)
	<-woken // live
	fill(t, s, backend.Tenantless(), ref, 5)
	<-woken
	select {
	case <-woken:
		t.Error("five wakes at once are more than one value")
	default:
	}
	must(t, s.Close())
	if _, open := <-woken; open {
		t.Error("the channel outlives the store")
	}
}

func TestX5WhatChangedNothingWakesNobody(t *testing.T) {
	s := memory.New(memory.Options{})
	ref := publish(t, s, backend.Tenantless(), "g")
	documents := fill(t, s, backend.Tenantless(), ref, 1)
	batch, err := s.ClaimDue(t.Context(), policy(at(time.Hour), 1))
	must(t, err)
	l := batch.Leases[0]
	woken, err := s.Subscribe(t.Context())
	must(t, err)
	<-woken // live
	must(t, s.RefreshClaim(t.Context(), l.Run, l.Token, at(time.Hour)))
	must(t, s.ReleaseClaim(t.Context(), l.Run, "stale", claim.ReleasePolicy{}))
	_, err = s.AbandonClaim(t.Context(), l.Run, "stale", claim.AbandonPolicy{MaxAbandons: 1})
	must(t, err)
	must(t, s.RetryPoisonedRun(t.Context(), backend.System(), l.Run, epoch))
	_, err = s.Commit(t.Context(), backend.System(), completion(documents[l.Run], "stale", epoch))
	if !errors.Is(err, checkpoint.ErrStaleFence) {
		t.Errorf("a stale commit answered %v", err)
	}
	_, err = s.MutateRun(t.Context(), backend.System(), l.Run, "c", func(*run.Document) (backend.Mutation, error) { return backend.Mutation{}, nil })
	must(t, err)
	select {
	case <-woken:
		t.Error("somebody was woken")
	default:
	}
	must(t, s.ReleaseClaim(t.Context(), l.Run, l.Token, claim.ReleasePolicy{}))
	<-woken
}

func TestA7TokensOfTheStoreAreULIDsAndDiffer(t *testing.T) {
	s := memory.New(memory.Options{})
	ref := publish(t, s, backend.Tenantless(), "g")
	fill(t, s, backend.Tenantless(), ref, 2000)
	seen := map[claim.Token]bool{}
	for range 2 {
		batch, err := s.ClaimDue(t.Context(), policy(at(time.Hour), 1000))
		must(t, err)
		for _, l := range batch.Leases {
			if len(l.Token) != 26 || seen[l.Token] {
				t.Fatalf("a token of %d bytes, seen before: %v", len(l.Token), seen[l.Token])
			}
			seen[l.Token] = true
		}
	}
	if len(seen) != 2000 {
		t.Errorf("%d tokens", len(seen))
	}
}

func TestX6TheClockNeverGoesBack(t *testing.T) {
	now := epoch
	s := memory.New(memory.Options{Now: func() time.Time { return now }})
	for _, c := range []struct{ clock, want time.Time }{
		{epoch, epoch},
		{at(1500 * time.Nanosecond), at(time.Microsecond)},
		{at(-time.Hour), at(time.Microsecond)},
		{at(time.Second), at(time.Second)},
	} {
		now = c.clock
		got, err := s.Now(t.Context())
		if err != nil || got != c.want {
			t.Errorf("with the clock at %v it is %v, %v; want %v", c.clock, got, err, c.want)
		}
	}
}

// H8: empty and oversized identifiers are refused at every entry point.
func TestH8EmptyAndOversizedIdentifiersAreRefused(t *testing.T) {
	s := memory.New(memory.Options{})
	ref := publish(t, s, backend.Tenantless(), "g")
	sys, none := backend.System(), backend.Tenantless()
	for _, bad := range []string{"", string(make([]byte, 5)), fmt.Sprintf("%256d", 1), "\xff"} {
		run := func(edit func(in *backend.Initialization)) error {
			in := initial("a", ref, epoch)
			edit(&in)
			_, err := s.InsertRun(t.Context(), none, in)
			return err
		}
		commit := func(edit func(c *backend.Commit)) error {
			c := completion(initial("a", ref, epoch).Document, "t", epoch)
			edit(&c)
			_, err := s.Commit(t.Context(), sys, c)
			return err
		}
		for name, err := range map[string]error{
			"insert: run":        run(func(in *backend.Initialization) { in.Document.ID = bad }),
			"insert: checkpoint": run(func(in *backend.Initialization) { in.CheckpointID = checkpoint.ID(bad) }),
			"insert: key":        run(func(in *backend.Initialization) { in.Key = bad + "\x00" }),
			"insert: tenant": func() error {
				_, err := s.InsertRun(t.Context(), backend.Tenant(bad), initial("a", ref, epoch))
				return err
			}(),
			"commit: run":        commit(func(c *backend.Commit) { c.Document.ID = bad }),
			"commit: checkpoint": commit(func(c *backend.Commit) { c.CheckpointID = checkpoint.ID(bad) }),
			"commit: token":      commit(func(c *backend.Commit) { c.Token = claim.Token(bad) }),
			"fetch: run":         func() error { _, err := s.FetchRun(t.Context(), sys, bad); return err }(),
			"fetch: tenant":      func() error { _, err := s.FetchRun(t.Context(), backend.Of(backend.Tenant(bad)), "a"); return err }(),
			"list: tenant": func() error {
				_, err := s.ListRuns(t.Context(), backend.Of(backend.Tenant(bad)), backend.Query{Limit: 1})
				return err
			}(),
			"refresh: run":         s.RefreshClaim(t.Context(), bad, "t", epoch),
			"refresh: token":       s.RefreshClaim(t.Context(), "a", claim.Token(bad), epoch),
			"refresh batch: token": s.RefreshClaims(t.Context(), []backend.Held{{Run: "a", Token: claim.Token(bad)}}, epoch)[0],
			"release: token":       s.ReleaseClaim(t.Context(), "a", claim.Token(bad), claim.ReleasePolicy{}),
			"abandon: token": func() error {
				_, err := s.AbandonClaim(t.Context(), "a", claim.Token(bad), claim.AbandonPolicy{MaxAbandons: 1})
				return err
			}(),
			"recover: run":       s.RetryPoisonedRun(t.Context(), sys, bad, epoch),
			"mutate: run":        func() error { _, err := s.MutateRun(t.Context(), sys, bad, "c", cancel); return err }(),
			"mutate: checkpoint": func() error { _, err := s.MutateRun(t.Context(), sys, "a", checkpoint.ID(bad), cancel); return err }(),
			"events: run":        func() error { _, err := s.ListEvents(t.Context(), sys, bad, backend.EventQuery{Limit: 1}); return err }(),
			"claim: filter's run": func() error {
				p := policy(epoch, 1)
				p.Filter.Runs = []string{bad}
				_, err := s.ClaimDue(t.Context(), p)
				return err
			}(),
			"save graph: tenant": s.SaveGraph(t.Context(), backend.Tenant(bad), ref, value.Value(`{}`)),
			"graph versions: graph": func() error {
				_, err := s.GraphVersions(t.Context(), none, bad, backend.GraphQuery{Limit: 1})
				return err
			}(),
		} {
			if !errors.Is(err, backend.ErrInvalidArgument) {
				t.Errorf("%s %q answered %v", name, bad, err)
			}
		}
	}
}
