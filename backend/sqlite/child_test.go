package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/internal/procstore"
	"github.com/belay-run/belay/lifecycle"
	"github.com/belay-run/belay/node"
	"github.com/belay-run/belay/run"
)

// A child is this test binary again, told by its environment what to do.
const (
	childRole   = "BELAY_TEST_CHILD"
	childFile   = "BELAY_TEST_FILE"
	childOffset = "BELAY_TEST_OFFSET" // of its clock, so that it may steal from those before it
)

// The graphs of the crash tests: two steps the first of which fails once, a question, and a
// node that not every engine has.
var (
	workGraph = &graph.Document{
		ID: "work",
		Fields: map[string]graph.Field{
			"n": {Schema: []byte(`{"type":"integer"}`)},
		},
		Nodes: map[string]graph.Node{
			"first":  {Use: "count", Retry: &graph.Retry{MaxAttempts: 2, Backoff: graph.Backoff{Initial: graph.Duration(time.Microsecond)}}},
			"second": {Use: "count"},
		},
		Edges: map[string]graph.Edge{
			"start": {From: graph.Sources{graph.Start}, To: "first"},
			"then":  {From: graph.Sources{"first"}, To: "second"},
			"end":   {From: graph.Sources{"second"}, To: graph.Finish},
		},
		Outputs: map[string]graph.Output{"n": {From: "n"}},
	}
	questionGraph = single("question", "question")
	rareGraph     = single("rare", "rare")
)

func single(id, use string) *graph.Document {
	return &graph.Document{
		ID:    id,
		Nodes: map[string]graph.Node{"only": {Use: use}},
		Edges: map[string]graph.Edge{"start": {From: graph.Sources{graph.Start}, To: "only"}},
	}
}

type counted struct {
	N int `json:"n"`
}

func registry(rare bool) *node.Registry {
	nodes := node.NewRegistry()
	nodes.Add(node.Of("count", 1, func(ctx context.Context, _ struct{}) (counted, error) {
		call, _ := node.FromContext(ctx)
		if call.Node == "first" && call.Attempt == 1 {
			return counted{}, errors.New("not yet")
		}
		return counted{N: call.Attempt}, nil
	}))
	nodes.Add(node.Of("question", 1, func(ctx context.Context, _ struct{}) (struct{}, error) {
		if _, ok, err := node.Answered[bool](ctx, ""); ok || err != nil {
			return struct{}{}, err
		}
		return struct{}{}, node.Ask(node.Question{Prompt: "go on?"})
	}))
	if rare {
		nodes.Add(node.Of("rare", 1, func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }))
	}
	return nodes
}

// shifted is the system's clock, some time ahead.
type shifted struct{ by time.Duration }

func (c shifted) Now() time.Time { return time.Now().Add(c.by) }

func (c shifted) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}

func newEngine(s backend.Store, c shifted, rare bool, observe func(*run.Document, []run.Event)) (*lifecycle.Engine, error) {
	return lifecycle.New(lifecycle.Config{
		Backend: s, Nodes: registry(rare), Clock: c, Observe: observe, MaxAbandons: 1000, AbandonBackoff: 10 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

// promise tells the parent what was answered. A line is written at once or not at all.
func promise(format string, args ...any) { fmt.Fprintf(os.Stdout, format+"\n", args...) }

func child(role string) int {
	offset, err := strconv.ParseInt(os.Getenv(childOffset), 10, 64)
	if err == nil {
		c := shifted{by: time.Duration(offset)}
		switch role {
		case "crash":
			err = crashChild(c)
		case "look":
			err = lookChild(c)
		case "remote":
			err = procstore.Serve(os.Stdin, os.Stdout, openRemote)
		case "worker":
			err = workerChild(c)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// crashChild starts, drives, answers, cancels and prunes runs, until somebody kills it.
func crashChild(c shifted) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, os.Getenv(childFile), sqlite.Options{Now: c.Now})
	if err != nil {
		return err
	}
	observe := func(d *run.Document, _ []run.Event) { promise("commit %s %d %s", d.ID, d.Seq, d.Status) }
	all, err := newEngine(s, c, true, observe)
	if err != nil {
		return err
	}
	some, err := newEngine(s, c, false, observe)
	if err != nil {
		return err
	}
	w := &crashing{s: s, c: c, all: all, some: some}
	for _, doc := range []*graph.Document{workGraph, questionGraph, rareGraph} {
		ref, err := all.Publish(ctx, doc)
		if err != nil {
			return err
		}
		w.refs = append(w.refs, ref)
	}
	promise("ready")
	for {
		if err := w.round(ctx); err != nil {
			return err
		}
	}
}

type crashing struct {
	s         *sqlite.Store
	c         shifted
	all, some *lifecycle.Engine
	refs      []graph.Ref // work, question, rare
}

func (w *crashing) round(ctx context.Context) error {
	var ids []string
	for _, ref := range append(w.refs, w.refs...) {
		r, err := w.all.Start(ctx, ref, nil, lifecycle.StartOptions{})
		if err != nil {
			return err
		}
		promise("commit %s %d %s", r.ID, r.Seq, r.Status)
		ids = append(ids, r.ID)
	}
	// An engine that lacks a type hands its runs back, one that has all does the rest.
	if _, err := w.some.Drain(ctx, lifecycle.DrainOptions{}); err != nil {
		return err
	}
	if err := w.claimAndRelease(ctx); err != nil {
		return err
	}
	if _, err := w.all.Drain(ctx, lifecycle.DrainOptions{}); err != nil {
		return err
	}
	if err := w.answer(ctx, ids[1]); err != nil {
		return err
	}
	promise("mayprune %s", ids[4])
	r, err := w.all.Cancel(ctx, ids[4], "enough")
	if err != nil {
		return err
	}
	promise("commit %s %d %s", r.ID, r.Seq, r.Status)
	if _, err := w.all.Drain(ctx, lifecycle.DrainOptions{}); err != nil {
		return err
	}
	_, err = w.s.Prune(ctx, backend.PrunePolicy{Before: w.c.Now(), Statuses: []run.Status{run.Cancelled}, Limit: 10})
	return err
}

func (w *crashing) claimAndRelease(ctx context.Context) error {
	b, err := w.s.ClaimDue(ctx, claim.Policy{TTL: time.Minute, Limit: 2, MaxAttempts: 100})
	if err != nil {
		return err
	}
	for _, l := range b.Leases {
		if err := w.s.ReleaseClaim(ctx, l.Run, l.Token, claim.ReleasePolicy{Refund: true}); err != nil {
			return err
		}
	}
	return nil
}

func (w *crashing) answer(ctx context.Context, id string) error {
	d, err := w.all.Fetch(ctx, id)
	if err != nil {
		return err
	}
	for _, in := range d.OpenInterrupts() {
		r, err := w.all.Resolve(ctx, id, in.ID, true)
		if err != nil {
			return err
		}
		promise("commit %s %d %s", r.ID, r.Seq, r.Status)
	}
	return nil
}

// lookChild audits what a killed process left behind, holds it to the promises it reads,
// finishes every run, and audits again. It writes what is wrong, and nothing else.
func lookChild(c shifted) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, os.Getenv(childFile), sqlite.Options{Now: c.Now, Synchronous: sqlite.Normal})
	if err != nil {
		return err
	}
	if err := audit(ctx, s, "left behind"); err != nil {
		return err
	}
	for {
		var id string
		var status run.Status
		var seq int64
		var mayBeGone bool
		if _, err := fmt.Scanln(&id, &seq, &status, &mayBeGone); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		d, err := s.FetchRun(ctx, backend.System(), id)
		switch {
		case err != nil && !(mayBeGone && errors.Is(err, backend.ErrNotFound)):
			fmt.Printf("run %s, answered at sequence %d: %v\n", id, seq, err)
		case err == nil && (d.Seq < seq || status.Terminal() && d.Status != status):
			fmt.Printf("run %s is at %d, %s; answered was %d, %s\n", id, d.Seq, d.Status, seq, status)
		}
	}
	if err := finish(ctx, s, c); err != nil {
		return err
	}
	if err := audit(ctx, s, "finished"); err != nil {
		return err
	}
	return s.Close()
}

func audit(ctx context.Context, s *sqlite.Store, when string) error {
	for f, err := range s.Audit(ctx, backend.AuditPolicy{MaxAttempts: 100}) {
		if err != nil {
			return err
		}
		if f.Severity != backend.SeverityWarning {
			fmt.Printf("%s: %+v\n", when, f)
		}
	}
	return nil
}

// finish drives every run to its end.
func finish(ctx context.Context, s *sqlite.Store, clock shifted) error {
	e, err := newEngine(s, clock, true, nil)
	if err != nil {
		return err
	}
	for range 3 {
		if _, err := e.Drain(ctx, lifecycle.DrainOptions{}); err != nil {
			return err
		}
		page, err := s.ListRuns(ctx, backend.System(), backend.Query{Statuses: []run.Status{run.Running, run.Waiting}, Limit: 1000})
		if err != nil || len(page.Runs) == 0 {
			return err
		}
		for _, r := range page.Runs {
			d, err := s.FetchRun(ctx, backend.System(), r.Run)
			if err != nil {
				return err
			}
			for _, in := range d.OpenInterrupts() {
				if _, err := e.Resolve(ctx, r.Run, in.ID, true); err != nil {
					return err
				}
			}
		}
	}
	return errors.New("there are runs that do not end")
}

// workerChild drives everything that is there, beside others, to the end.
func workerChild(c shifted) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, os.Getenv(childFile), sqlite.Options{Now: c.Now})
	if err != nil {
		return err
	}
	e, err := newEngine(s, c, true, func(d *run.Document, _ []run.Event) { promise("commit %s %d %s", d.ID, d.Seq, d.Status) })
	if err != nil {
		return err
	}
	for {
		if _, err := e.Drain(ctx, lifecycle.DrainOptions{}); err != nil {
			return err
		}
		page, err := s.ListRuns(ctx, backend.System(), backend.Query{Statuses: []run.Status{run.Running}, Limit: 1})
		if err != nil {
			return err
		}
		if len(page.Runs) == 0 {
			return s.Close()
		}
		time.Sleep(time.Millisecond) // others hold what is left
	}
}
