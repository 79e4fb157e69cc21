package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/postgres"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/internal/pgtest"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

var began = time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC)

// aGraph is bytes that a store takes for a graph.
func aGraph() (graph.Ref, value.Value) {
	raw := value.Value(`{"id":"proof"}`)
	return graph.Ref{ID: "proof", Hash: value.Hash(raw)}, raw
}

// draft is the first commit of a run that is due.
func draft(id string, edit ...func(*backend.Initialization)) backend.Initialization {
	ref, _ := aGraph()
	d := &run.Document{ID: id, Graph: ref, Status: run.Running, Seq: 1, EventSeq: 2, StartedAt: began, UpdatedAt: began}
	in := backend.Initialization{
		Proposal: run.Proposal{
			Document: d, Type: checkpoint.RunInitialized, Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseNow}, Now: began,
			Events: []run.Event{{Run: id, Seq: 1, Type: run.EventRunInitialized, At: began}, closing(id, 2, 1, checkpoint.RunInitialized)},
		},
		CheckpointID: checkpoint.ID("insert of " + id),
	}
	for _, e := range edit {
		e(&in)
	}
	return in
}

func closing(id string, seq, commit int64, kind checkpoint.Type) run.Event {
	return run.Event{Run: id, Seq: seq, Type: run.EventCheckpointCommitted, At: began, Checkpoint: kind, Commit: commit}
}

// ending is the commit that takes a run from where it stands to done.
func ending(d *run.Document, token claim.Token) backend.Commit {
	next := *d
	next.Seq, next.EventSeq, next.Status, next.FinishedAt, next.Output = d.Seq+1, d.EventSeq+2, run.Done, began, value.Value("null")
	return backend.Commit{
		Proposal: run.Proposal{
			Expected: d.Seq, Document: &next, Type: checkpoint.RunCompleted, Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseTerminal},
			Now: began, Events: []run.Event{
				{Run: d.ID, Seq: next.EventSeq - 1, Type: run.EventRunCompleted, At: began}, closing(d.ID, next.EventSeq, next.Seq, checkpoint.RunCompleted),
			},
		},
		CheckpointID: checkpoint.ID(fmt.Sprintf("commit %d of %s", next.Seq, d.ID)), Token: token,
	}
}

func keyed(key string) func(*backend.Initialization) {
	return func(in *backend.Initialization) { in.Key = key }
}

// newStore is a store with the graph published.
func newStore(t testing.TB, a access, opts postgres.Options) *postgres.Store {
	t.Helper()
	if opts.Schema == "" {
		opts.Schema = pgtest.Schema(t)
	}
	s, err := postgres.New(a.pool(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ref, raw := aGraph()
	if err := s.SaveGraph(t.Context(), backend.Tenantless(), ref, raw); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestH32StartsInHostTransactions (H32, X8): at every isolation level a refused start leaves the
// host's transaction usable, and a rollback leaves nothing.
func TestH32StartsInHostTransactions(t *testing.T) {
	a := direct(t)
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			s, ctx := newStore(t, a, postgres.Options{}), t.Context()
			owner := backend.Tenantless()
			if _, err := s.InsertRun(ctx, owner, draft("taken", keyed("held"))); err != nil {
				t.Fatal(err)
			}
			tx, err := a.pool().BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
			if err != nil {
				t.Fatal(err)
			}
			host := s.WithTx(tx)
			other := func(in *backend.Initialization) { in.CheckpointID = "other" }
			for _, refused := range []struct {
				in   backend.Initialization
				want error
			}{
				{draft("taken", other), backend.ErrConflict},
				{draft("taken", other, keyed("free")), backend.ErrConflict},
				{draft("x", func(in *backend.Initialization) { in.Document.Graph.ID = "absent" }), backend.ErrNotFound},
				{draft("x", func(in *backend.Initialization) { in.Type = checkpoint.RunFailed }), backend.ErrInvalidCommit},
				{draft(""), backend.ErrInvalidArgument},
			} {
				if _, err := host.InsertRun(ctx, owner, refused.in); !errors.Is(err, refused.want) {
					t.Errorf("a start answered %v; it must answer %v", err, refused.want)
				}
			}
			if got, err := host.InsertRun(ctx, owner, draft("y", keyed("held"))); err != nil || !got.Existing || got.Run != "taken" {
				t.Errorf("a start under a held key answered %+v, %v", got, err)
			}
			if _, err := host.InsertRun(ctx, owner, draft("mine", keyed("free"))); err != nil {
				t.Errorf("a start after refused ones: %v", err)
			}
			if _, err := host.FetchRun(ctx, backend.System(), "mine"); err != nil {
				t.Errorf("the run within the transaction: %v", err)
			}
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
			for table, want := range map[string]int{"runs": 1, "starts": 1, "events": 1, "start_keys": 1} {
				var n int
				if err := a.raw.QueryRow(ctx, "select count(*) from "+nameOf(s, table)).Scan(&n); err != nil || n != want {
					t.Errorf("after the rollback %s has %d rows, %v", table, n, err)
				}
			}
		})
	}
}

func nameOf(s *postgres.Store, name string) string {
	return pgx.Identifier{s.Schema(), name}.Sanitize()
}

// TestH22AKeyWhoseWinnerRollsBack (H22): the second of two transactions under one start key waits
// for the first, and starts its run when that rolls back; when it commits, answers its run.
func TestH22AKeyWhoseWinnerRollsBack(t *testing.T) {
	a := direct(t)
	for _, commits := range []bool{false, true} {
		s, ctx := newStore(t, a, postgres.Options{}), t.Context()
		first, err := a.pool().Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.WithTx(first).InsertRun(ctx, backend.Tenantless(), draft("first", keyed("k"))); err != nil {
			t.Fatal(err)
		}
		type answer struct {
			in  backend.Inserted
			err error
		}
		answers := make(chan answer, 1)
		go func() {
			in, err := s.InsertRun(ctx, backend.Tenantless(), draft("second", keyed("k")))
			answers <- answer{in, err}
		}()
		waitUntilBlockedBy(t, a, first)
		want := backend.Inserted{Run: "second"}
		if commits {
			want = backend.Inserted{Run: "first", Existing: true}
			err = first.Commit(ctx)
		} else {
			err = first.Rollback(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := <-answers; got.err != nil || got.in != want {
			t.Errorf("when the first one commits (%v) the second one answers %+v, %v", commits, got.in, got.err)
		}
	}
}

func waitUntilBlockedBy(t *testing.T, a access, tx pgx.Tx) {
	t.Helper()
	for waiting := 0; waiting == 0; {
		const ask = "select count(*) from pg_stat_activity where $1 = any (pg_blocking_pids(pid))"
		if err := a.raw.QueryRow(t.Context(), ask, int32(tx.Conn().PgConn().PID())).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
}

// TestH35ManyStartersDoNotDeadlock (H35): transactions that start several runs each, of one graph
// and in every order, never wait for each other.
func TestH35ManyStartersDoNotDeadlock(t *testing.T) {
	a := direct(t)
	s := newStore(t, a, postgres.Options{})
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			errs[i] = pgx.BeginFunc(t.Context(), a.pool(), func(tx pgx.Tx) error {
				for n := range 10 {
					if i%2 == 1 {
						n = 9 - n
					}
					if _, err := s.WithTx(tx).InsertRun(t.Context(), backend.Tenantless(), draft(fmt.Sprintf("run-%d-%d", n, i))); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("starter %d: %v", i, err)
		}
	}
	// Uncommitted starts of one transaction hold up nobody else's.
	tx, err := a.pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := s.WithTx(tx).InsertRun(t.Context(), backend.Tenantless(), draft("open")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := s.InsertRun(ctx, backend.Tenantless(), draft("beside")); err != nil {
		t.Errorf("a start beside an open transaction: %v", err)
	}
}

// TestH35NoTransitionTouchesRowsOfOthers (H35): what a start, a claim, a refresh, a commit and a
// release write is rows that name their run.
func TestH35NoTransitionTouchesRowsOfOthers(t *testing.T) {
	a := direct(t)
	s, ctx := newStore(t, a, postgres.Options{}), t.Context()
	in := draft("a")
	if _, err := s.InsertRun(ctx, backend.Tenantless(), in); err != nil {
		t.Fatal(err)
	}
	batch, err := s.ClaimDue(ctx, claim.Policy{Now: began, Limit: 1, MaxAttempts: 1})
	if err != nil || len(batch.Leases) != 1 {
		t.Fatal(batch, err)
	}
	if _, err := s.Commit(ctx, backend.System(), ending(in.Document, batch.Leases[0].Token)); err != nil {
		t.Fatal(err)
	}
	var touched []string
	for _, name := range []string{"graphs", "migrations"} {
		var n int
		// A row that was locked, even only to refer to it, has an xmax.
		if err := a.raw.QueryRow(ctx, "select count(*) from "+nameOf(s, name)+" where xmax <> 0").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			touched = append(touched, name)
		}
	}
	if len(touched) > 0 {
		t.Errorf("rows were touched of %s", strings.Join(touched, ", "))
	}
}
