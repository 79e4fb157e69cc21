package procstore

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// peer is another process, which has stores open.
type peer struct {
	*rpc.Client
	cmd *exec.Cmd
}

// count is over how many processes the calls of one store are spread.
const count = 3

// Peers are processes that tests share: each test has its own stores in them. They are started when
// the first store is opened.
type Peers struct {
	command func() *exec.Cmd

	mu     sync.Mutex
	all    []*peer
	stores int
	calls  atomic.Uint64
}

// NewPeers is processes of a command, which is to call Serve on its input and output.
func NewPeers(command func() *exec.Cmd) *Peers { return &Peers{command: command} }

// start answers the processes, and a number for a store in them.
func (p *Peers) start() ([]*peer, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.all) < count {
		cmd := p.command()
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
		p.all = append(p.all, &peer{rpc.NewClient(pipe{out, in}), cmd})
	}
	p.stores++
	return p.all, p.stores, nil
}

// End ends the processes, at the end of the tests.
func (p *Peers) End() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, one := range p.all {
		errs = append(errs, one.Close(), one.cmd.Wait())
	}
	p.all = nil
	return errors.Join(errs...)
}

// Everywhere is one store, whose calls are made by several processes in turn. It offers no wakes, and
// its clock is the first process's, since one keeps from going back within a process.
type Everywhere struct {
	shared *Peers
	peers  []*peer
	store  int
	audit  backend.Auditor // in this process
	turn   atomic.Uint64
}

// Open opens the store at a place in every process.
func (p *Peers) Open(place string, audit backend.Auditor) (*Everywhere, error) {
	all, n, err := p.start()
	if err != nil {
		return nil, err
	}
	e := &Everywhere{shared: p, peers: all, store: n, audit: audit}
	for _, one := range all {
		if err := one.Call("Store.Open", OpenArguments{Store: n, Place: place}, &struct{}{}); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// SetClock sets the clock of the store in every process.
func (e *Everywhere) SetClock(now time.Time) error {
	var errs []error
	for _, p := range e.peers {
		errs = append(errs, p.Call("Store.SetClock", OpenArguments{Store: e.store, Now: now}, &struct{}{}))
	}
	return errors.Join(errs...)
}

// Features implements backend.Store.
func (e *Everywhere) Features() backend.Features {
	return backend.Features{
		StartClaimed: true, Batches: e, ClaimDocuments: e, ClaimFilter: true, Clock: e, Retention: e, Audit: e.audit, OwnerCap: true,
	}
}

// Close is the call of that name.
func (e *Everywhere) Close() error {
	var errs []error
	for _, p := range e.peers {
		errs = append(errs, p.Call("Store.Close", e.store, &struct{}{}))
	}
	return errors.Join(errs...)
}

// ask makes a call in the process whose turn it is.
func (e *Everywhere) ask(ctx context.Context, name string, q Request) (Response, error) {
	p := e.peers[e.turn.Add(1)%uint64(len(e.peers))]
	return e.askPeer(ctx, p, name, q, nil)
}

// askPeer makes a call. The other process hears of the end of ctx, and answers then.
func (e *Everywhere) askPeer(ctx context.Context, p *peer, name string, q Request, decide func(*run.Document) Decision) (a Response, err error) {
	q.Store, q.Name, q.Call = e.store, name, e.shared.calls.Add(1)
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

// InsertRun is the call of that name.
func (e *Everywhere) InsertRun(ctx context.Context, o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
	a, err := e.ask(ctx, "InsertRun", Request{Owner: wiredOwner(o), Inserts: []backend.Initialization{in}})
	if err != nil {
		return backend.Inserted{}, err
	}
	return a.Inserted[0].inserted(), nil
}

// FetchRun is the call of that name.
func (e *Everywhere) FetchRun(ctx context.Context, s backend.Scope, id string) (*run.Document, error) {
	a, err := e.ask(ctx, "FetchRun", Request{Scope: wiredScope(s), Run: id})
	if err != nil {
		return nil, err
	}
	return a.Documents[0].document()
}

// InspectRun is the call of that name.
func (e *Everywhere) InspectRun(ctx context.Context, s backend.Scope, id string) (backend.Info, error) {
	a, err := e.ask(ctx, "InspectRun", Request{Scope: wiredScope(s), Run: id})
	if err != nil {
		return backend.Info{}, err
	}
	d, err := a.Documents[0].document()
	return a.Info.info(d), err
}

// ListRuns is the call of that name.
func (e *Everywhere) ListRuns(ctx context.Context, s backend.Scope, q backend.Query) (backend.Page, error) {
	a, err := e.ask(ctx, "ListRuns", Request{Scope: wiredScope(s), Runs: q})
	p := backend.Page{Next: a.NextRun, HasMore: a.HasMore}
	for _, r := range a.Runs {
		p.Runs = append(p.Runs, r.summary())
	}
	return p, err
}

// ClaimDue is the call of that name.
func (e *Everywhere) ClaimDue(ctx context.Context, p claim.Policy) (claim.Batch, error) {
	a, err := e.ask(ctx, "ClaimDue", Request{Claim: p})
	return a.Batch.batch(), err
}

// ClaimDueDocuments is the call of that name.
func (e *Everywhere) ClaimDueDocuments(ctx context.Context, p claim.Policy) (backend.ClaimedBatch, error) {
	a, err := e.ask(ctx, "ClaimDueDocuments", Request{Claim: p})
	b := backend.ClaimedBatch{Batch: a.Batch.batch()}
	for _, w := range a.Documents {
		var d backend.ClaimedDocument
		d.Document, d.Err = w.document()
		b.Documents = append(b.Documents, d)
	}
	return b, err
}

// RefreshClaim is the call of that name.
func (e *Everywhere) RefreshClaim(ctx context.Context, id string, t claim.Token, now time.Time) error {
	_, err := e.ask(ctx, "RefreshClaim", Request{Run: id, Token: t, Now: now})
	return err
}

// RefreshClaims is the call of that name.
func (e *Everywhere) RefreshClaims(ctx context.Context, claims []backend.Held, now time.Time) []error {
	a, err := e.ask(ctx, "RefreshClaims", Request{Held: claims, Now: now})
	errs := make([]error, len(claims))
	for i := range errs {
		if errs[i] = err; err == nil {
			errs[i] = a.Errs[i].error()
		}
	}
	return errs
}

// ReleaseClaim is the call of that name.
func (e *Everywhere) ReleaseClaim(ctx context.Context, id string, t claim.Token, p claim.ReleasePolicy) error {
	_, err := e.ask(ctx, "ReleaseClaim", Request{Run: id, Token: t, Release: p})
	return err
}

// AbandonClaim is the call of that name.
func (e *Everywhere) AbandonClaim(ctx context.Context, id string, t claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	a, err := e.ask(ctx, "AbandonClaim", Request{Run: id, Token: t, Abandon: p})
	return a.Disposition, err
}

// RetryPoisonedRun is the call of that name.
func (e *Everywhere) RetryPoisonedRun(ctx context.Context, s backend.Scope, id string, now time.Time) error {
	_, err := e.ask(ctx, "RetryPoisonedRun", Request{Scope: wiredScope(s), Run: id, Now: now})
	return err
}

// Commit is the call of that name.
func (e *Everywhere) Commit(ctx context.Context, s backend.Scope, c backend.Commit) (backend.Committed, error) {
	a, err := e.ask(ctx, "Commit", Request{Scope: wiredScope(s), Commits: []backend.Commit{c}})
	if err != nil {
		return backend.Committed{}, err
	}
	return a.Committed[0].Committed, nil
}

// Commits is the call of that name.
func (e *Everywhere) Commits(ctx context.Context, s backend.Scope, cs []backend.Commit) []backend.CommitResult {
	a, err := e.ask(ctx, "Commits", Request{Scope: wiredScope(s), Commits: cs})
	all := make([]backend.CommitResult, len(cs))
	for i := range all {
		if all[i].Err = err; err == nil {
			all[i] = backend.CommitResult{Committed: a.Committed[i].Committed, Err: a.Committed[i].Err.error()}
		}
	}
	return all
}

// InsertRuns is the call of that name.
func (e *Everywhere) InsertRuns(ctx context.Context, o backend.Owner, ins []backend.Initialization) []backend.InsertResult {
	a, err := e.ask(ctx, "InsertRuns", Request{Owner: wiredOwner(o), Inserts: ins})
	all := make([]backend.InsertResult, len(ins))
	for i := range all {
		if all[i].Err = err; err == nil {
			all[i] = backend.InsertResult{Inserted: a.Inserted[i].inserted(), Err: a.Inserted[i].Err.error()}
		}
	}
	return all
}

// MutateRun is the call of that name: the function is called here, on the goroutine of the caller.
func (e *Everywhere) MutateRun(ctx context.Context, s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
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

// FetchEvent is the call of that name.
func (e *Everywhere) FetchEvent(ctx context.Context, s backend.Scope, id string, seq int64) (run.Event, error) {
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

// LatestEvent is the call of that name.
func (e *Everywhere) LatestEvent(ctx context.Context, s backend.Scope, id string) (*run.Event, error) {
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

// ListEvents is the call of that name.
func (e *Everywhere) ListEvents(ctx context.Context, s backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
	a, err := e.ask(ctx, "ListEvents", Request{Scope: wiredScope(s), Run: id, Events: q})
	if err != nil {
		return backend.EventPage{}, err
	}
	a.EventPage.Events, err = a.events()
	return a.EventPage, err
}

// SaveGraph is the call of that name.
func (e *Everywhere) SaveGraph(ctx context.Context, o backend.Owner, ref graph.Ref, raw value.Value) error {
	_, err := e.ask(ctx, "SaveGraph", Request{Owner: wiredOwner(o), Graph: ref, Raw: raw})
	return err
}

// FetchGraph is the call of that name.
func (e *Everywhere) FetchGraph(ctx context.Context, o backend.Owner, ref graph.Ref) (value.Value, error) {
	a, err := e.ask(ctx, "FetchGraph", Request{Owner: wiredOwner(o), Graph: ref})
	return a.Raw, err
}

// LatestGraph is the call of that name.
func (e *Everywhere) LatestGraph(ctx context.Context, o backend.Owner, id string) (backend.GraphVersion, error) {
	a, err := e.ask(ctx, "LatestGraph", Request{Owner: wiredOwner(o), Graph: graph.Ref{ID: id}})
	if err != nil {
		return backend.GraphVersion{}, err
	}
	return a.Graphs.Versions[0], nil
}

// GraphVersions is the call of that name.
func (e *Everywhere) GraphVersions(ctx context.Context, o backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error) {
	a, err := e.ask(ctx, "GraphVersions", Request{Owner: wiredOwner(o), Graph: graph.Ref{ID: id}, Graphs: q})
	return a.Graphs, err
}

// Prune is the call of that name.
func (e *Everywhere) Prune(ctx context.Context, p backend.PrunePolicy) (backend.Pruned, error) {
	a, err := e.ask(ctx, "Prune", Request{Prune: p})
	return a.Pruned, err
}

// Now is the call of that name.
func (e *Everywhere) Now(ctx context.Context) (time.Time, error) {
	a, err := e.askPeer(ctx, e.peers[0], "Now", Request{}, nil)
	return a.Now.UTC(), err
}
