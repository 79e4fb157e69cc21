package main

import (
	"context"
	"fmt"
	"time"
)

// p6 works in a SQLite file, flushed at every commit.
func p6() row {
	r := row{id: "P6", work: "start many runs, then drain them (SQLite file, synchronous FULL)"}
	for _, nodes := range []int{1, 5} {
		name := "one node"
		if nodes == 5 {
			name = "five nodes"
		}
		r.contests = append(r.contests, contest{
			name: name,
			contestants: []contestant{
				{name: "belay", settings: fmt.Sprintf("Concurrency %d, StartMany by %d", fileSlots, startBatch), run: fileBelay(20_000/nodes, 3_000/nodes, nodes)},
				{name: "go-workflows", settings: goWorkflowsSettings, run: fileGoWorkflows(1_500/nodes, 300/nodes, nodes)},
				{
					name: "raw sqlite", settings: fmt.Sprintf("modernc.org/sqlite, belay's tables, %d runs a transaction, prepared statements", rawGroup),
					run: fileRaw(20_000/nodes, 3_000/nodes, nodes),
				},
			},
			targets: []target{
				{metric: "runs/s", against: "go-workflows", least: 30},
				{metric: "drained/s", against: "raw sqlite", least: 0.6},
			},
		})
	}
	return r
}

// fileSlots is how many runs the engine drives at once on a file.
const fileSlots = 200

func fileBelay(full, quick, nodes int) func(context.Context, *env) (figures, error) {
	return func(ctx context.Context, e *env) (figures, error) {
		n := e.size(full, quick)
		store, _, err := inFile(ctx, e)
		if err != nil {
			return nil, err
		}
		defer store.Close()
		b, err := newBelay(ctx, store, fileSlots, nodes, n)
		if err != nil {
			return nil, err
		}
		payload := text(1000)
		var drained time.Duration
		spent, err := e.profiled(func() error {
			if err := b.startAll(ctx, n, payload); err != nil {
				return err
			}
			var err error
			drained, err = stretch(func() error { return b.drain(ctx) })
			return err
		})
		if err != nil {
			return nil, err
		}
		f := spent.per(n, "run")
		f["drained/s"] = float64(n) / drained.Seconds()
		return f, b.check(ctx, store, n)
	}
}

func fileGoWorkflows(full, quick, nodes int) func(context.Context, *env) (figures, error) {
	return func(ctx context.Context, e *env) (figures, error) {
		n := e.size(full, quick)
		path, err := e.file("go-workflows.db")
		if err != nil {
			return nil, err
		}
		g := &goWorkflows{path: path, seen: newSeen(n), steps: nodes}
		spent, err := g.run(ctx, e, n, text(1000))
		if err != nil {
			return nil, err
		}
		return spent.per(n, "run"), g.check(ctx, n)
	}
}

func fileRaw(full, quick, nodes int) func(context.Context, *env) (figures, error) {
	return func(ctx context.Context, e *env) (figures, error) {
		n := e.size(full, quick)
		store, path, err := inFile(ctx, e)
		if err != nil {
			return nil, err
		}
		b, err := newBelay(ctx, store, 1, nodes, n)
		if err == nil {
			err = b.startAll(ctx, n, text(1000))
		}
		if closed := store.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return nil, err
		}
		s, err := record(ctx, nodes, text(1000))
		if err != nil {
			return nil, err
		}
		f, err := openRaw(ctx, path)
		if err != nil {
			return nil, err
		}
		defer f.db.Close()
		drained := 0
		spent, err := e.measured(func() (err error) {
			drained, err = f.drain(ctx, s)
			return err
		})
		switch {
		case err != nil:
			return nil, err
		case drained != n:
			return nil, wrong("%d runs drained, want %d", drained, n)
		}
		return figures{"drained/s": float64(n) / spent.elapsed.Seconds()}, f.check(ctx, n)
	}
}
