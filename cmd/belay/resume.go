package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/belay-run/belay"
	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/node/std"
)

// resumeRun is belay run --resume.
func resumeRun(ctx context.Context, place *location, opts runOptions) (err error) {
	t := place.terminal
	answers, err := parseAnswers(opts.answers)
	if err != nil {
		return err
	}
	s, err := place.existing(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	info, err := findRun(ctx, s, backend.System(), opts.resume)
	if err != nil {
		return err
	}
	progress := newProgress(t)
	engine, err := newEngine(s, progress)
	if err != nil {
		return err
	}
	d := driver{
		place: place, store: s, engine: engine, client: clientOf(engine, info.Owner), run: info.Document.ID,
		answers: answers, progress: progress,
	}
	if info.Document.Status.Terminal() || !info.Poison.At.IsZero() {
		r, err := d.client.Inspect(ctx, d.run)
		if err != nil {
			return err
		}
		t.say("run %s of %s does not go on", d.run, info.Document.Graph.ID)
		return d.outcome(ctx, r)
	}
	if err := d.canRun(ctx, info, answers); err != nil {
		return err
	}
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	if opts.steal && stateOf(summaryOf(info), now) == stateClaimed {
		h, err := s.holder(ctx, d.run)
		if err != nil {
			return err
		}
		switch {
		case !h.kept:
			return usage(fmt.Errorf("run %s is held by %s, and this database does not keep which one: nobody can tell whether it is gone", d.run, h),
				"if it is gone, its claim expires at "+clock(info.ClaimedAt.Add(claimTTL))+"; this waits for it: "+place.again("run", "--resume", d.run))
		case !h.gone():
			return usage(fmt.Errorf("run %s is held by %s: it is not known to be gone", d.run, h),
				"end it, or wait until its claim expires: "+place.again("run", "--resume", d.run))
		}
		if err := s.takeOver(ctx, d.run, h); err != nil {
			return err
		}
		t.say("taken over from %s", h)
	}
	t.say("run %s of %s goes on after checkpoint %d", d.run, info.Document.Graph.ID, info.Document.Seq)
	return d.toTheEnd(ctx)
}

// canRun refuses a run whose nodes this program does not have, or whose graph has no node that an
// answer is for, before anything of the run is touched.
func (d *driver) canRun(ctx context.Context, info backend.Info, answers []answer) error {
	ref := info.Document.Graph
	raw, err := d.store.FetchGraph(ctx, info.Owner, ref)
	if err != nil {
		return &exitError{exitInfrastructure, fmt.Errorf("graph %s of run %s: %w", ref.ID, d.run, err), "see: " + d.place.again("fsck")}
	}
	compiled, err := graph.Load(ref, raw)
	if err != nil {
		return err
	}
	if _, err := std.Register(node.NewRegistry()).Prepare(compiled, 0); err != nil {
		return usage(err, "resume it with the program that has its nodes")
	}
	doc := compiled.Document()
	for _, a := range answers {
		if _, ok := doc.Nodes[a.node]; !ok {
			return usage(fmt.Errorf("--answer %s: the run's graph has no such node", a.node),
				"see: "+d.place.again("runs", "explain", d.run))
		}
	}
	return nil
}

// clientOf sees the runs of an owner.
func clientOf(engine *belay.Engine, owner backend.Owner) *belay.Client {
	if tenant, ok := owner.Tenant(); ok {
		return engine.For(tenant)
	}
	return &engine.Client
}
