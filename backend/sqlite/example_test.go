package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// A store is one line. Its directory is closed to others, and created when asked for.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	store, err := sqlite.Open(context.Background(), filepath.Join(dir, "data", "orders.db"), sqlite.Options{CreateDirectory: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(filepath.Base(store.Path()))
	if err := store.Close(); err != nil {
		log.Fatal(err)
	}

	_, err = sqlite.Open(context.Background(), filepath.Join(dir, "elsewhere", "orders.db"), sqlite.Options{})
	if refused, ok := errors.AsType[*sqlite.OpenError](err); ok {
		fmt.Println(refused.Problem)
	}
	// Output:
	// orders.db
	// no_directory
}

// The host's own rows and the start of a run, in one transaction of the host's: both, or
// neither.
func ExampleStore_WithTx() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := sqlite.Open(ctx, filepath.Join(dir, "orders.db"), sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	raw := value.Value(`{"edges":{"start":{"from":"$start","to":"$finish"}},"id":"order","nodes":{}}`)
	ref := graph.Ref{ID: "order", Hash: value.Hash(raw)}
	if err := store.SaveGraph(ctx, backend.Tenantless(), ref, raw); err != nil {
		log.Fatal(err)
	}

	host, err := sql.Open("sqlite", store.HostDSN())
	if err != nil {
		log.Fatal(err)
	}
	defer host.Close()
	if _, err := host.ExecContext(ctx, "create table orders (id integer primary key)"); err != nil {
		log.Fatal(err)
	}

	for id, keep := range []bool{false, true} {
		tx, err := host.BeginTx(ctx, nil)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := tx.ExecContext(ctx, "insert into orders (id) values (?)", id); err != nil {
			log.Fatal(err)
		}
		if _, err := store.WithTx(tx).InsertRun(ctx, backend.Tenantless(), firstCommit(fmt.Sprintf("order-%d", id), ref)); err != nil {
			log.Fatal(err)
		}
		if keep {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		if err != nil {
			log.Fatal(err)
		}
	}

	page, err := store.ListRuns(ctx, backend.System(), backend.Query{Limit: 10})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range page.Runs {
		fmt.Println(r.Run, r.Status)
	}
	// Output:
	// order-1 running
}

// firstCommit is what an engine's StartIn makes.
func firstCommit(id string, ref graph.Ref) backend.Initialization {
	now := time.Now().UTC().Truncate(time.Microsecond)
	d := &run.Document{ID: id, Graph: ref, Status: run.Running, Step: 1, Seq: 1, EventSeq: 1, StartedAt: now, UpdatedAt: now}
	return backend.Initialization{
		Proposal: run.Proposal{
			Document: d, Type: checkpoint.RunInitialized, Schedule: checkpoint.Schedule{Kind: checkpoint.ReleaseNow}, Now: now,
			Events: []run.Event{{Run: id, Seq: 1, Type: run.EventCheckpointCommitted, At: now, Step: 1, Checkpoint: checkpoint.RunInitialized, Commit: 1}},
		},
		CheckpointID: checkpoint.ID(id + "-start"),
	}
}
