package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/belay-run/belay/backend/memory"
)

// memorySlots is how many runs the engine drives at once in memory.
const memorySlots = 100

// p7 is the engine's own cost: in memory nothing hides behind a database.
func p7() row {
	return row{
		id: "P7", work: "drain a backlog of one-node runs (memory)",
		contests: []contest{{
			contestants: []contestant{{
				name:     "belay",
				settings: fmt.Sprintf("Concurrency %d; calibrated: what two cores would do that hash 1 MB in 1 ms each", memorySlots),
				run:      drainMemory(300_000, 50_000),
			}},
			targets: []target{{metric: "calibrated runs/s", least: 150_000}},
		}},
	}
}

func drainMemory(full, quick int) func(context.Context, *env) (figures, error) {
	return func(ctx context.Context, e *env) (figures, error) {
		cores := min(2, runtime.NumCPU())
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
		n := e.size(full, quick)
		store := memory.New(memory.Options{})
		defer store.Close()
		b, err := newBelay(ctx, store, memorySlots, 1, n)
		if err != nil {
			return nil, err
		}
		if err := b.startAll(ctx, n, text(1000)); err != nil {
			return nil, err
		}
		before := calibrate()
		spent, err := e.profiled(func() error { return b.drain(ctx) })
		if err != nil {
			return nil, err
		}
		hash := (before + calibrate()) / 2
		f := spent.per(n, "run")
		f["calibration ms"] = hash
		f["calibrated runs/s"] = f["runs/s"] * hash * 2 / float64(cores)
		return f, b.check(ctx, store, n)
	}
}
