package lifecycle_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/run"
)

func TestStartBeginsAtOnceAsClaimedWhileASlotIsFreeAndNothingElseIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := counting(newMemory(nil), noWakes)
		e := newEngine(t, store, options{Concurrency: 2}, act("work", func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }))
		ref := publish(t, &e.Client, single)
		serve(t, e)
		synctest.Wait()
		n.Store(0)
		var runs []*lifecycle.Run
		for range 3 {
			runs = append(runs, start(t, &e.Client, ref, nil, lifecycle.StartOptions{}))
		}
		synctest.Wait()
		if runs[0].ClaimedAt.IsZero() || runs[1].ClaimedAt.IsZero() || !runs[2].ClaimedAt.IsZero() || runs[2].Wake.IsZero() {
			t.Errorf("claimed at %v, %v and %v: want the first two started as claimed, the third due", runs[0].ClaimedAt, runs[1].ClaimedAt, runs[2].ClaimedAt)
		}
		if n.Load() != 3 {
			t.Errorf("%d statements for three starts, want the inserts alone", n.Load())
		}
		for _, r := range runs {
			got, err := e.Await(t.Context(), r.ID)
			if err != nil {
				t.Fatal(err)
			}
			wantStatus(t, got, run.Done)
		}
		if s := e.Stats(); s.Claims != 3 || s.Commits != 3 || s.Abandons+s.Releases+s.LostClaims != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestStartStoresAsDueWhatCannotBeginHereAndNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory(nil)
		work := act("work", func(context.Context) error { return nil })
		e := newEngine(t, store, options{}, act("other", func(context.Context) error { return nil }))
		able := newEngine(t, store, options{}, work)
		ref := publish(t, &able.Client, single)
		serve(t, e)
		synctest.Wait()
		if r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{}); !r.ClaimedAt.IsZero() {
			t.Error("claimed a run whose node type it lacks")
		}
		for name, e := range map[string]*lifecycle.Engine{
			"paused":          newEngine(t, store, options{}, work),
			"not running":     newEngine(t, store, options{}, work),
			"capped by owner": newEngine(t, store, options{OwnerCap: 1}, work),
		} {
			if name == "paused" {
				e.Pause()
			}
			if name != "not running" {
				serve(t, e)
			}
			synctest.Wait()
			if r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{}); !r.ClaimedAt.IsZero() {
				t.Errorf("%s: started as claimed", name)
			}
		}
		serving := newEngine(t, store, options{}, work)
		serve(t, serving)
		synctest.Wait()
		if r := start(t, &serving.Client, ref, nil, lifecycle.StartOptions{At: time.Now().Add(time.Hour)}); !r.ClaimedAt.IsZero() {
			t.Error("claimed a run that is for later")
		}
	})
}

func TestSlotOfAStartThatFailedIsFreeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		store := without(newMemory(nil), nil)
		store.fail = func(op string, _ bool) error {
			if away.Load() && op == "insert" {
				return backend.ErrConflict
			}
			return nil
		}
		e := newEngine(t, store, options{Concurrency: 1}, act("work", func(context.Context) error { return nil }))
		ref := publish(t, &e.Client, single)
		shutdown := serve(t, e)
		synctest.Wait()
		away.Store(true)
		if _, err := e.Start(t.Context(), ref, nil, lifecycle.StartOptions{}); !errors.Is(err, backend.ErrConflict) {
			t.Fatal(err)
		}
		away.Store(false)
		for i := range 2 { // the second answers the first, and gives its slot back too
			if r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{Key: "k", Window: time.Hour}); r.Existing != (i == 1) {
				t.Errorf("start %d: existing %v", i, r.Existing)
			}
			synctest.Wait()
		}
		if h := e.Health(); h.Held != 0 {
			t.Errorf("%d slots are taken", h.Held)
		}
		if err := shutdown(); err != nil {
			t.Error(err)
		}
	})
}

// A start whose answer was lost is sent again, and answered without a lease: the run is stored, and
// goes on after one TTL.
func TestStartAsClaimedWhoseAnswerIsLostCostsOneTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lose atomic.Bool
		store := without(newMemory(nil), nil)
		store.fail = func(op string, after bool) error {
			if op == "insert" && after && lose.CompareAndSwap(true, false) {
				return unknown(op)
			}
			return nil
		}
		var launches atomic.Int64
		e := newEngine(t, store, options{TTL: time.Minute}, act("work", func(context.Context) error { launches.Add(1); return nil }))
		ref := publish(t, &e.Client, single)
		serve(t, e)
		synctest.Wait()
		lose.Store(true)
		began := time.Now()
		r := start(t, &e.Client, ref, nil, lifecycle.StartOptions{})
		got, err := e.Await(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		wantStatus(t, got, run.Done)
		if took := time.Since(began); took > time.Minute+2*time.Second || launches.Load() != 1 {
			t.Errorf("it took %v and %d launches", took, launches.Load())
		}
	})
}

func TestStartManyAnswersForEach(t *testing.T) {
	for _, tt := range []struct {
		name string
		drop func(*backend.Features)
	}{{"in batches", func(*backend.Features) {}}, {"one by one", func(f *backend.Features) { f.Batches = nil }}} {
		t.Run(tt.name, func(t *testing.T) {
			store := newMemory(nil)
			lost := 0
			features := store.Features()
			features.Batches = losing{features.Batches, &lost}
			tt.drop(&features)
			e := newEngine(t, without(store, func(f *backend.Features) { *f = features }), options{Concurrency: 50}, act("work", func(context.Context) error { return nil }))
			ref := publish(t, &e.Client, single)
			runs := make([]lifecycle.NewRun, 250)
			for i := range runs {
				runs[i].ID = fmt.Sprint(i)
			}
			runs[7].ID = "6"
			runs[100].Input = []int{1}
			runs[101].ID = "\x00"
			runs[200].Key, runs[201].Key = "k", "k"
			got, err := e.StartMany(t.Context(), ref, runs)
			if err != nil || len(got) != len(runs) {
				t.Fatalf("%d answers, %v", len(got), err)
			}
			for i, s := range got {
				switch {
				case i == 7:
					if !errors.Is(s.Err, backend.ErrConflict) {
						t.Errorf("a taken id: %v", s.Err)
					}
				case i == 100:
					if !errors.Is(s.Err, run.ErrInvalidInput) {
						t.Errorf("a bad input: %v", s.Err)
					}
				case i == 101:
					if !errors.Is(s.Err, backend.ErrInvalidArgument) {
						t.Errorf("a bad id: %v", s.Err)
					}
				case i == 201:
					if s.Err != nil || !s.Existing || s.ID != "200" {
						t.Errorf("a held key: %+v", s)
					}
				case s.Err != nil || s.ID != runs[i].ID || s.Existing:
					t.Errorf("run %d: %+v", i, s)
				}
			}
			if d := drain(t, e); d.Commits != 246 {
				t.Errorf("%+v", d)
			}
			if tt.name == "in batches" && lost != 1 {
				t.Errorf("%d answers were lost", lost)
			}
		})
	}
}

func TestStartManySendsLargeRunsInSmallerCalls(t *testing.T) {
	store := &gathering{Store: newMemory(nil)}
	e := newEngine(t, store, options{}, act("work", func(context.Context) error { return nil }))
	ref := publish(t, &e.Client, single+"inputs: {blob: {schema: {type: string}}}\n")
	for _, tt := range []struct {
		runs, bytes int
		calls       []int
	}{{700, 10, []int{300, 300, 100}}, {13, 700_000, []int{6, 6, 1}}} {
		store.groups = nil
		runs := make([]lifecycle.NewRun, tt.runs)
		for i := range runs {
			runs[i].Input = map[string]string{"blob": strings.Repeat("b", tt.bytes)}
		}
		got, err := e.StartMany(t.Context(), ref, runs)
		if err != nil || !slices.Equal(store.groups, tt.calls) {
			t.Errorf("%d runs of %d bytes: calls of %v, %v, want %v", tt.runs, tt.bytes, store.groups, err, tt.calls)
		}
		for i, s := range got {
			if s.Err != nil {
				t.Fatalf("run %d: %v", i, s.Err)
			}
		}
	}
}

// losing loses the answer of its first batch of inserts.
type losing struct {
	backend.Batches
	lost *int
}

func (l losing) InsertRuns(ctx context.Context, owner backend.Owner, ins []backend.Initialization) []backend.InsertResult {
	results := l.Batches.InsertRuns(ctx, owner, ins)
	if *l.lost == 0 {
		*l.lost++
		for i := range results {
			results[i] = backend.InsertResult{Err: unknown("insert runs")}
		}
	}
	return results
}

func TestH32StartInIsThereWithTheHostsCommitAndNeverWasAfterItsRollback(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{SharedDirectory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	db, err := sql.Open("sqlite", store.HostDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE orders (id INTEGER PRIMARY KEY) STRICT"); err != nil {
		t.Fatal(err)
	}
	var observed atomic.Int64
	e := newEngine(t, store, options{Observe: func(d *run.Document, _ []run.Event) {
		if d.Seq == 1 {
			observed.Add(1)
		}
	}}, act("work", func(context.Context) error { return nil }))
	ref := publish(t, &e.Client, single)
	serve(t, e)
	host := func(id string, end func(*sql.Tx) error) *lifecycle.Run {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO orders DEFAULT VALUES"); err != nil {
			t.Fatal(err)
		}
		r, err := e.StartIn(t.Context(), store.WithTx(tx), ref, nil, lifecycle.StartOptions{ID: id, Key: "order"})
		if err != nil {
			t.Fatal(err)
		}
		again, err := e.StartIn(t.Context(), store.WithTx(tx), ref, nil, lifecycle.StartOptions{Key: "order"})
		if err != nil || !again.Existing || again.ID != id {
			t.Errorf("the key's second start in the transaction: %+v, %v", again, err)
		}
		if !r.ClaimedAt.IsZero() || r.Wake.IsZero() {
			t.Errorf("claimed at %v, wake %v", r.ClaimedAt, r.Wake)
		}
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
		return r
	}
	host("rolled-back", (*sql.Tx).Rollback)
	if _, err := e.Inspect(t.Context(), "rolled-back"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("after the rollback: %v", err)
	}
	r := host("committed", (*sql.Tx).Commit)
	e.Wake()
	got, err := e.Await(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, got, run.Done)
	var orders int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM orders").Scan(&orders); err != nil || orders != 1 || observed.Load() != 0 {
		t.Errorf("%d orders, %v; %d starts observed before their commit", orders, err, observed.Load())
	}
}
