package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/proptest"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// pipe is what two processes talk over.
type pipe struct {
	io.ReadCloser
	out io.WriteCloser
}

func (p pipe) Write(b []byte) (int, error) { return p.out.Write(b) }

func (p pipe) Close() error { return errors.Join(p.ReadCloser.Close(), p.out.Close()) }

func serve(r *Remote, p pipe) error {
	s := rpc.NewServer()
	if err := s.RegisterName("Store", r); err != nil {
		return err
	}
	s.ServeConn(p)
	return nil
}

// peer is another process, which has stores open.
type peer struct {
	*rpc.Client
	cmd *exec.Cmd
}

// peersCount is over how many processes the calls of one store are spread.
const peersCount = 3

// peers are the processes that the tests share: each test has its own stores in them. They
// are started when the first test needs them, and end with this one.
var peers struct {
	sync.Mutex
	all    []*peer
	stores int
	calls  atomic.Uint64
}

// startPeers answers the processes, and a number for a store in them.
func startPeers() ([]*peer, int, error) {
	peers.Lock()
	defer peers.Unlock()
	for len(peers.all) < peersCount {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childRole+"=remote", childOffset+"=0")
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, 0, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, 0, err
		}
		if err := cmd.Start(); err != nil {
			return nil, 0, err
		}
		peers.all = append(peers.all, &peer{rpc.NewClient(pipe{out, in}), cmd})
	}
	peers.stores++
	return peers.all, peers.stores, nil
}

// endPeers ends the processes, at the end of the tests.
func endPeers() error {
	peers.Lock()
	defer peers.Unlock()
	var errs []error
	for _, p := range peers.all {
		errs = append(errs, p.Close(), p.cmd.Wait())
	}
	return errors.Join(errs...)
}

// everywhere is one store on one file, whose calls are made by several processes in turn. Wakes
// are told within a process, and the clock keeps from going back within one: those two calls
// stay in the first.
type everywhere struct {
	peers []*peer
	store int
	audit *sqlite.Store // in this process
	turn  atomic.Uint64
}

// openEverywhere opens a fresh store in several processes.
func openEverywhere(t proptest.T) proptest.Opened {
	t.Helper()
	f := newFixture(t)
	all, n, err := startPeers()
	if err != nil {
		t.Fatalf("%v", err)
	}
	e := &everywhere{peers: all, store: n, audit: f.store}
	for _, p := range all {
		if err := p.Call("Store.Open", OpenArguments{Store: n, Path: f.path}, &struct{}{}); err != nil {
			t.Fatalf("%v", err)
		}
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	o := f.opened(e)
	o.Hooks.SetClock = func(now time.Time) {
		f.setClock(now)
		for _, p := range all {
			if err := p.Call("Store.SetClock", OpenArguments{Store: n, Now: now}, &struct{}{}); err != nil {
				t.Errorf("%v", err)
			}
		}
	}
	return o
}

func (e *everywhere) Features() backend.Features {
	return backend.Features{
		StartClaimed: true, Batches: e, ClaimDocuments: e, ClaimFilter: true, Clock: e, Retention: e, Audit: e.audit, OwnerCap: true,
	}
}

func (e *everywhere) Close() error {
	var errs []error
	for _, p := range e.peers {
		errs = append(errs, p.Call("Store.Close", e.store, &struct{}{}))
	}
	return errors.Join(errs...)
}

// ask makes a call in the process whose turn it is.
func (e *everywhere) ask(ctx context.Context, name string, q Request) (Response, error) {
	p := e.peers[e.turn.Add(1)%uint64(len(e.peers))]
	return e.askPeer(ctx, p, name, q, nil)
}

// askPeer makes a call. The other process hears of the end of ctx, and answers then.
func (e *everywhere) askPeer(ctx context.Context, p *peer, name string, q Request, decide func(*run.Document) Decision) (a Response, err error) {
	q.Store, q.Name, q.Call = e.store, name, peers.calls.Add(1)
	q.Deadline, _ = ctx.Deadline()
	cancelled := make(chan struct{})
	cancel := func() {
		defer close(cancelled)
		_ = p.Call("Store.Cancel", q.Call, &struct{}{}) // the call itself fails too
	}
	if ctx.Err() != nil {
		cancel()
	} else if stop := context.AfterFunc(ctx, cancel); true {
		defer func() {
			if !stop() {
				<-cancelled
			}
		}()
	}
	err = p.Call("Store.Call", q, &a)
	for err == nil && a.Ask {
		var d *run.Document
		if d, err = a.Documents[0].document(); err != nil {
			break
		}
		decision := decide(d)
		decision.Call = q.Call
		a = Response{}
		err = p.Call("Store.Decide", decision, &a)
	}
	if err != nil {
		return a, &backend.InfrastructureError{Op: name, Nature: backend.Unknown, Err: err}
	}
	return a, a.Err.error()
}

func (e *everywhere) InsertRun(ctx context.Context, o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
	a, err := e.ask(ctx, "InsertRun", Request{Owner: wiredOwner(o), Inserts: []backend.Initialization{in}})
	if err != nil {
		return backend.Inserted{}, err
	}
	return a.Inserted[0].inserted(), nil
}

func (e *everywhere) FetchRun(ctx context.Context, s backend.Scope, id string) (*run.Document, error) {
	a, err := e.ask(ctx, "FetchRun", Request{Scope: wiredScope(s), Run: id})
	if err != nil {
		return nil, err
	}
	return a.Documents[0].document()
}

func (e *everywhere) InspectRun(ctx context.Context, s backend.Scope, id string) (backend.Info, error) {
	a, err := e.ask(ctx, "InspectRun", Request{Scope: wiredScope(s), Run: id})
	if err != nil {
		return backend.Info{}, err
	}
	d, err := a.Documents[0].document()
	return a.Info.info(d), err
}

func (e *everywhere) ListRuns(ctx context.Context, s backend.Scope, q backend.Query) (backend.Page, error) {
	a, err := e.ask(ctx, "ListRuns", Request{Scope: wiredScope(s), Runs: q})
	p := backend.Page{Next: a.NextRun, HasMore: a.HasMore}
	for _, r := range a.Runs {
		p.Runs = append(p.Runs, r.summary())
	}
	return p, err
}

func (e *everywhere) ClaimDue(ctx context.Context, p claim.Policy) (claim.Batch, error) {
	a, err := e.ask(ctx, "ClaimDue", Request{Claim: p})
	return a.Batch.batch(), err
}

func (e *everywhere) ClaimDueDocuments(ctx context.Context, p claim.Policy) (backend.ClaimedBatch, error) {
	a, err := e.ask(ctx, "ClaimDueDocuments", Request{Claim: p})
	b := backend.ClaimedBatch{Batch: a.Batch.batch()}
	for _, w := range a.Documents {
		var d backend.ClaimedDocument
		d.Document, d.Err = w.document()
		b.Documents = append(b.Documents, d)
	}
	return b, err
}

func (e *everywhere) RefreshClaim(ctx context.Context, id string, t claim.Token, now time.Time) error {
	_, err := e.ask(ctx, "RefreshClaim", Request{Run: id, Token: t, Now: now})
	return err
}

func (e *everywhere) RefreshClaims(ctx context.Context, claims []backend.Held, now time.Time) []error {
	a, err := e.ask(ctx, "RefreshClaims", Request{Held: claims, Now: now})
	errs := make([]error, len(claims))
	for i := range errs {
		if errs[i] = err; err == nil {
			errs[i] = a.Errs[i].error()
		}
	}
	return errs
}

func (e *everywhere) ReleaseClaim(ctx context.Context, id string, t claim.Token, p claim.ReleasePolicy) error {
	_, err := e.ask(ctx, "ReleaseClaim", Request{Run: id, Token: t, Release: p})
	return err
}

func (e *everywhere) AbandonClaim(ctx context.Context, id string, t claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	a, err := e.ask(ctx, "AbandonClaim", Request{Run: id, Token: t, Abandon: p})
	return a.Disposition, err
}

func (e *everywhere) RetryPoisonedRun(ctx context.Context, s backend.Scope, id string, now time.Time) error {
	_, err := e.ask(ctx, "RetryPoisonedRun", Request{Scope: wiredScope(s), Run: id, Now: now})
	return err
}

func (e *everywhere) Commit(ctx context.Context, s backend.Scope, c backend.Commit) (backend.Committed, error) {
	a, err := e.ask(ctx, "Commit", Request{Scope: wiredScope(s), Commits: []backend.Commit{c}})
	if err != nil {
		return backend.Committed{}, err
	}
	return a.Committed[0].Committed, nil
}

func (e *everywhere) Commits(ctx context.Context, s backend.Scope, cs []backend.Commit) []backend.CommitResult {
	a, err := e.ask(ctx, "Commits", Request{Scope: wiredScope(s), Commits: cs})
	all := make([]backend.CommitResult, len(cs))
	for i := range all {
		if all[i].Err = err; err == nil {
			all[i] = backend.CommitResult{Committed: a.Committed[i].Committed, Err: a.Committed[i].Err.error()}
		}
	}
	return all
}

func (e *everywhere) InsertRuns(ctx context.Context, o backend.Owner, ins []backend.Initialization) []backend.InsertResult {
	a, err := e.ask(ctx, "InsertRuns", Request{Owner: wiredOwner(o), Inserts: ins})
	all := make([]backend.InsertResult, len(ins))
	for i := range all {
		if all[i].Err = err; err == nil {
			all[i] = backend.InsertResult{Inserted: a.Inserted[i].inserted(), Err: a.Inserted[i].Err.error()}
		}
	}
	return all
}

// MutateRun: the function is called here, on the goroutine of the caller.
func (e *everywhere) MutateRun(ctx context.Context, s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
	if err := backend.CheckMutate(s, id, c, fn); err != nil {
		return backend.Mutated{}, err
	}
	var last backend.Mutation
	var failed error
	p := e.peers[e.turn.Add(1)%uint64(len(e.peers))]
	a, err := e.askPeer(ctx, p, "MutateRun", Request{Scope: wiredScope(s), Run: id, Commit: c}, func(d *run.Document) Decision {
		last, failed = fn(d)
		return Decision{Proposal: last.Proposal, Failed: failed != nil}
	})
	switch {
	case errors.Is(err, errDecided):
		return backend.Mutated{}, failed
	case err != nil:
		return backend.Mutated{}, err
	}
	m := backend.Mutated{Committed: a.Mutated, Replayed: a.Replayed}
	if !m.Replayed {
		m.Value = last.Value
	}
	m.Document, err = a.Documents[0].document()
	return m, err
}

// events decodes what another process has read.
func (a Response) events() (all []run.Event, err error) {
	for _, raw := range a.Events {
		e, err := run.DecodeEvent(raw)
		if err != nil {
			return nil, fmt.Errorf("an event of another process: %w", err)
		}
		all = append(all, e)
	}
	return all, nil
}

func (e *everywhere) FetchEvent(ctx context.Context, s backend.Scope, id string, seq int64) (run.Event, error) {
	a, err := e.ask(ctx, "FetchEvent", Request{Scope: wiredScope(s), Run: id, Seq: seq})
	if err != nil {
		return run.Event{}, err
	}
	all, err := a.events()
	if err != nil {
		return run.Event{}, err
	}
	return all[0], nil
}

func (e *everywhere) LatestEvent(ctx context.Context, s backend.Scope, id string) (*run.Event, error) {
	a, err := e.ask(ctx, "LatestEvent", Request{Scope: wiredScope(s), Run: id})
	if err != nil {
		return nil, err
	}
	all, err := a.events()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

func (e *everywhere) ListEvents(ctx context.Context, s backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
	a, err := e.ask(ctx, "ListEvents", Request{Scope: wiredScope(s), Run: id, Events: q})
	if err != nil {
		return backend.EventPage{}, err
	}
	a.EventPage.Events, err = a.events()
	return a.EventPage, err
}

func (e *everywhere) SaveGraph(ctx context.Context, o backend.Owner, ref graph.Ref, raw value.Value) error {
	_, err := e.ask(ctx, "SaveGraph", Request{Owner: wiredOwner(o), Graph: ref, Raw: raw})
	return err
}

func (e *everywhere) FetchGraph(ctx context.Context, o backend.Owner, ref graph.Ref) (value.Value, error) {
	a, err := e.ask(ctx, "FetchGraph", Request{Owner: wiredOwner(o), Graph: ref})
	return a.Raw, err
}

func (e *everywhere) LatestGraph(ctx context.Context, o backend.Owner, id string) (backend.GraphVersion, error) {
	a, err := e.ask(ctx, "LatestGraph", Request{Owner: wiredOwner(o), Graph: graph.Ref{ID: id}})
	if err != nil {
		return backend.GraphVersion{}, err
	}
	return a.Graphs.Versions[0], nil
}

func (e *everywhere) GraphVersions(ctx context.Context, o backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error) {
	a, err := e.ask(ctx, "GraphVersions", Request{Owner: wiredOwner(o), Graph: graph.Ref{ID: id}, Graphs: q})
	return a.Graphs, err
}

func (e *everywhere) Prune(ctx context.Context, p backend.PrunePolicy) (backend.Pruned, error) {
	a, err := e.ask(ctx, "Prune", Request{Prune: p})
	return a.Pruned, err
}

func (e *everywhere) Now(ctx context.Context) (time.Time, error) {
	a, err := e.askPeer(ctx, e.peers[0], "Now", Request{}, nil)
	return a.Now.UTC(), err
}
