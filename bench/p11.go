package main

import (
	"context"
	"runtime"
	"time"

	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// p11 is the pure machine: plan and settle, without a store, an engine or a clock.
func p11() row {
	return row{
		id: "P11", work: "plan and settle a one-node run with 1 KB of state (pure)",
		contests: []contest{{
			contestants: []contestant{{
				name: "belay", settings: "one goroutine; calibrated: on a core that hashes 1 MB in 1 ms",
				run: planAndSettle(300_000, 30_000),
			}},
			targets: []target{{metric: "calibrated µs", most: 4}},
		}},
	}
}

func planAndSettle(full, quick int) func(context.Context, *env) (figures, error) {
	return func(_ context.Context, e *env) (figures, error) {
		m, d, err := oneNode()
		if err != nil {
			return nil, err
		}
		now := d.StartedAt
		step := func() (run.Proposal, error) {
			plan, err := m.Plan(d, now)
			if err != nil {
				return run.Proposal{}, err
			}
			return m.Settle(d, plan, []run.Result{run.Completed("step0", nil)}, now)
		}
		p, err := step()
		if err != nil {
			return nil, err
		}
		if p.Document.Status != run.Done {
			return nil, wrong("the run is %s, not done", p.Document.Status)
		}
		n := e.size(full, quick)
		before := calibrate()
		var counted, after runtime.MemStats
		runtime.ReadMemStats(&counted)
		spent, err := e.profiled(func() error {
			for range n {
				if _, err := step(); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		runtime.ReadMemStats(&after)
		hash := (before + calibrate()) / 2
		each := float64(spent.elapsed.Nanoseconds()) / 1e3 / float64(n)
		return figures{
			"µs": each, "calibration ms": hash, "calibrated µs": each / hash,
			"allocations": float64((after.Mallocs - counted.Mallocs) / uint64(n)),
			"bytes":       float64((after.TotalAlloc - counted.TotalAlloc) / uint64(n)),
		}, nil
	}
}

// oneNode is a machine, and a run of it that is about to execute its node.
func oneNode() (*run.Machine, *run.Document, error) {
	doc, err := graph.ParseYAML([]byte(chain(1)))
	if err != nil {
		return nil, nil, err
	}
	types := node.NewRegistry()
	types.Add(node.Of("work", 1, func(context.Context, numbered) (struct{}, error) { return struct{}{}, nil }))
	compiled, err := graph.Publish(doc, types.Manifest())
	if err != nil {
		return nil, nil, err
	}
	in, err := value.Of(input{Payload: text(1000)})
	if err != nil {
		return nil, nil, err
	}
	m := run.NewMachine(compiled, value.Limits{})
	p, err := m.Init(run.Initial{Run: "01JNZ7V4T8ZK2W3N8Q5Y6R7S9T", Input: in}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	return m, p.Document, err
}
