package procstore

import (
	"context"
	"errors"
	"io"
	"net/rpc"
	"sync"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// Request is a call of a store that another process has open: the name of the operation and
// those of the arguments that it takes.
type Request struct {
	Store    int
	Call     uint64
	Deadline time.Time // of the caller's context
	Name     string

	Owner   wireOwner
	Scope   wireScope
	Run     string
	Seq     int64
	Token   claim.Token
	Now     time.Time
	Commit  checkpoint.ID
	Claim   claim.Policy
	Release claim.ReleasePolicy
	Abandon claim.AbandonPolicy
	Inserts []backend.Initialization
	Commits []backend.Commit
	Held    []backend.Held
	Runs    backend.Query
	Events  backend.EventQuery
	Graphs  backend.GraphQuery
	Graph   graph.Ref
	Raw     value.Value
	Prune   backend.PrunePolicy
}

// Response is the answer. Documents and events are encoded as a store keeps them.
type Response struct {
	Err wireError

	Inserted    []wireInserted
	Committed   []wireCommitted
	Errs        []wireError
	Batch       wireBatch
	Disposition claim.Disposition
	Documents   []wireDocument
	Info        wireInfo
	Runs        []wireSummary
	NextRun     backend.Cursor
	HasMore     bool
	Events      [][]byte
	EventPage   backend.EventPage // without its events
	Raw         value.Value
	Graphs      backend.GraphPage
	Pruned      backend.Pruned
	Now         time.Time

	// Ask: a mutation's function is to decide on the document, and the call goes on with
	// Decide. Otherwise it is at its end.
	Ask               bool
	Mutated, Replayed bool
}

// Decision is what a mutation's function answered, in the process that called MutateRun.
type Decision struct {
	Call     uint64
	Proposal *run.Proposal
	Failed   bool
}

// errDecided stands for the error of a mutation's function, which stays where it is.
var errDecided = errors.New("the function answered an error")

// Store is what can be called from another process.
type Store interface {
	backend.Store
	backend.Batches
	backend.ClaimDocuments
	backend.Retention
	backend.Clock
}

// Open opens the store at a place, on that clock.
type Open func(place string, now func() time.Time) (Store, error)

// Remote is what a process offers to the one that started it.
type Remote struct {
	mu     sync.Mutex
	open   Open
	stores map[int]*opened
	calls  map[uint64]*underWay
}

type opened struct {
	Store
	mu  sync.Mutex
	now time.Time // zero: the system's clock
}

func (o *opened) clock() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now.IsZero() {
		return time.Now()
	}
	return o.now
}

// underWay is a call that has been announced or begun.
type underWay struct {
	ctx    context.Context
	cancel context.CancelFunc
	asks   chan *run.Document
	told   chan Decision
	done   chan Response
}

// OpenArguments name a place, and the store that it is to be.
type OpenArguments struct {
	Store int
	Place string
	Now   time.Time
}

// Open opens a store.
func (r *Remote) Open(a OpenArguments, _ *struct{}) error {
	o := &opened{}
	s, err := r.open(a.Place, o.clock)
	if err != nil {
		return err
	}
	o.Store = s
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stores[a.Store] = o
	return nil
}

func (r *Remote) store(n int) *opened {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stores[n]
}

// SetClock sets the clock of a store.
func (r *Remote) SetClock(a OpenArguments, _ *struct{}) error {
	o := r.store(a.Store)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now = a.Now
	return nil
}

// Close closes a store, which stays there to answer that it is closed.
func (r *Remote) Close(n int, _ *struct{}) error { return r.store(n).Close() }

// call finds a call, or makes it: its cancellation may overtake it.
func (r *Remote) call(id uint64) *underWay {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.calls[id]
	if u == nil {
		u = &underWay{asks: make(chan *run.Document), told: make(chan Decision), done: make(chan Response, 1)}
		u.ctx, u.cancel = context.WithCancel(context.Background())
		r.calls[id] = u
	}
	return u
}

func (r *Remote) forget(id uint64, u *underWay) {
	u.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.calls, id)
}

// Cancel ends the context of a call.
func (r *Remote) Cancel(id uint64, _ *struct{}) error {
	r.call(id).cancel()
	return nil
}

// Call calls a store.
func (r *Remote) Call(q Request, a *Response) error {
	u := r.call(q.Call)
	ctx, cancel := u.ctx, context.CancelFunc(func() {})
	if !q.Deadline.IsZero() {
		ctx, cancel = context.WithDeadline(ctx, q.Deadline)
	}
	s := r.store(q.Store)
	if q.Name == "MutateRun" {
		go func() {
			defer cancel()
			u.done <- u.mutate(ctx, s.Store, q)
		}()
		*a = r.ask(q.Call, u)
		return nil
	}
	defer cancel()
	defer r.forget(q.Call, u)
	answer(ctx, s.Store, q, a)
	return nil
}

// Decide goes on with a mutation.
func (r *Remote) Decide(d Decision, a *Response) error {
	u := r.call(d.Call)
	u.told <- d
	*a = r.ask(d.Call, u)
	return nil
}

// ask waits for the next question of a mutation, or its end.
func (r *Remote) ask(id uint64, u *underWay) Response {
	select {
	case d := <-u.asks:
		return Response{Ask: true, Documents: []wireDocument{documentOf(d, nil)}}
	case a := <-u.done:
		r.forget(id, u)
		return a
	}
}

func (u *underWay) mutate(ctx context.Context, s Store, q Request) Response {
	m, err := s.MutateRun(ctx, q.Scope.scope(), q.Run, q.Commit, func(current *run.Document) (backend.Mutation, error) {
		u.asks <- current
		d := <-u.told
		if d.Failed {
			return backend.Mutation{}, errDecided
		}
		return backend.Mutation{Proposal: d.Proposal}, nil
	})
	a := Response{Err: errorOf(err), Mutated: m.Committed, Replayed: m.Replayed}
	if m.Document != nil {
		a.Documents = []wireDocument{documentOf(m.Document, nil)}
	}
	return a
}

// answer calls the operation of that name.
func answer(ctx context.Context, s Store, q Request, a *Response) {
	var err error
	switch q.Name {
	case "InsertRun":
		var in backend.Inserted
		in, err = s.InsertRun(ctx, q.Owner.owner(), q.Inserts[0])
		a.Inserted = []wireInserted{insertedOf(in, nil)}
	case "InsertRuns":
		for _, r := range s.InsertRuns(ctx, q.Owner.owner(), q.Inserts) {
			a.Inserted = append(a.Inserted, insertedOf(r.Inserted, r.Err))
		}
	case "FetchRun":
		var d *run.Document
		if d, err = s.FetchRun(ctx, q.Scope.scope(), q.Run); err == nil {
			a.Documents = []wireDocument{documentOf(d, nil)}
		}
	case "InspectRun":
		var i backend.Info
		if i, err = s.InspectRun(ctx, q.Scope.scope(), q.Run); err == nil {
			a.Documents, a.Info = []wireDocument{documentOf(i.Document, nil)}, infoOf(i)
		}
	case "ListRuns":
		var p backend.Page
		p, err = s.ListRuns(ctx, q.Scope.scope(), q.Runs)
		for _, r := range p.Runs {
			a.Runs = append(a.Runs, summaryOf(r))
		}
		a.NextRun, a.HasMore = p.Next, p.HasMore
	case "ClaimDue":
		var b claim.Batch
		b, err = s.ClaimDue(ctx, q.Claim)
		a.Batch = batchOf(b)
	case "ClaimDueDocuments":
		var b backend.ClaimedBatch
		b, err = s.ClaimDueDocuments(ctx, q.Claim)
		a.Batch = batchOf(b.Batch)
		for _, d := range b.Documents {
			a.Documents = append(a.Documents, documentOf(d.Document, d.Err))
		}
	case "RefreshClaim":
		err = s.RefreshClaim(ctx, q.Run, q.Token, q.Now)
	case "RefreshClaims":
		for _, err := range s.RefreshClaims(ctx, q.Held, q.Now) {
			a.Errs = append(a.Errs, errorOf(err))
		}
	case "ReleaseClaim":
		err = s.ReleaseClaim(ctx, q.Run, q.Token, q.Release)
	case "AbandonClaim":
		a.Disposition, err = s.AbandonClaim(ctx, q.Run, q.Token, q.Abandon)
	case "RetryPoisonedRun":
		err = s.RetryPoisonedRun(ctx, q.Scope.scope(), q.Run, q.Now)
	case "Commit":
		var c backend.Committed
		c, err = s.Commit(ctx, q.Scope.scope(), q.Commits[0])
		a.Committed = []wireCommitted{{c, wireError{}}}
	case "Commits":
		for _, r := range s.Commits(ctx, q.Scope.scope(), q.Commits) {
			a.Committed = append(a.Committed, wireCommitted{r.Committed, errorOf(r.Err)})
		}
	case "FetchEvent":
		var e run.Event
		if e, err = s.FetchEvent(ctx, q.Scope.scope(), q.Run, q.Seq); err == nil {
			a.Events, err = eventsOf(e)
		}
	case "LatestEvent":
		var e *run.Event
		if e, err = s.LatestEvent(ctx, q.Scope.scope(), q.Run); e != nil {
			a.Events, err = eventsOf(*e)
		}
	case "ListEvents":
		if a.EventPage, err = s.ListEvents(ctx, q.Scope.scope(), q.Run, q.Events); err == nil {
			a.Events, err = eventsOf(a.EventPage.Events...)
		}
		a.EventPage.Events = nil
	case "SaveGraph":
		err = s.SaveGraph(ctx, q.Owner.owner(), q.Graph, q.Raw)
	case "FetchGraph":
		a.Raw, err = s.FetchGraph(ctx, q.Owner.owner(), q.Graph)
	case "LatestGraph":
		var v backend.GraphVersion
		v, err = s.LatestGraph(ctx, q.Owner.owner(), q.Graph.ID)
		a.Graphs.Versions = []backend.GraphVersion{v}
	case "GraphVersions":
		a.Graphs, err = s.GraphVersions(ctx, q.Owner.owner(), q.Graph.ID, q.Graphs)
	case "Prune":
		a.Pruned, err = s.Prune(ctx, q.Prune)
	case "Now":
		a.Now, err = s.Now(ctx)
	default:
		err = errors.New("no operation " + q.Name)
	}
	a.Err = errorOf(err)
}

// Serve opens stores for the process that has started this one, until that closes in.
func Serve(in io.ReadCloser, out io.WriteCloser, open Open) error {
	s := rpc.NewServer()
	r := &Remote{open: open, stores: make(map[int]*opened), calls: make(map[uint64]*underWay)}
	if err := s.RegisterName("Store", r); err != nil {
		return err
	}
	s.ServeConn(pipe{in, out})
	return nil
}

// pipe is what two processes talk over.
type pipe struct {
	io.ReadCloser
	out io.WriteCloser
}

func (p pipe) Write(b []byte) (int, error) { return p.out.Write(b) }

func (p pipe) Close() error { return errors.Join(p.ReadCloser.Close(), p.out.Close()) }
