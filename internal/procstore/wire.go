package procstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// What has unexported fields crosses between processes in another form.

type wireOwner struct {
	Given, OfTenant bool
	Tenant          string
}

func wiredOwner(o backend.Owner) wireOwner {
	tenant, ok := o.Tenant()
	return wireOwner{o != backend.Owner{}, ok, tenant}
}

func (w wireOwner) owner() backend.Owner {
	switch {
	case w.OfTenant:
		return backend.Tenant(w.Tenant)
	case w.Given:
		return backend.Tenantless()
	}
	return backend.Owner{}
}

type wireScope struct {
	System bool
	Owner  wireOwner
}

func wiredScope(s backend.Scope) wireScope {
	o, ok := s.Owner()
	return wireScope{!ok, wiredOwner(o)}
}

func (w wireScope) scope() backend.Scope {
	if w.System {
		return backend.System()
	}
	return backend.Of(w.Owner.owner())
}

type wireLease struct {
	Run                string
	Owner              wireOwner
	GraphID, GraphHash string
	Seq                int64
	Token              claim.Token
	ClaimedAt          time.Time
	Attempt            int
	TTL                time.Duration
	Class              claim.Class
}

func leaseOf(l claim.Lease) wireLease {
	return wireLease{l.Run, wiredOwner(l.Owner), l.GraphID, l.GraphHash, l.Seq, l.Token, l.ClaimedAt, l.Attempt, l.TTL, l.Class}
}

func (w wireLease) lease() claim.Lease {
	return claim.Lease{
		Run: w.Run, Owner: w.Owner.owner(), GraphID: w.GraphID, GraphHash: w.GraphHash, Seq: w.Seq, Token: w.Token,
		ClaimedAt: w.ClaimedAt.UTC(), Attempt: w.Attempt, TTL: w.TTL, Class: w.Class,
	}
}

type wirePoisoned struct {
	Run                string
	Owner              wireOwner
	GraphID, GraphHash string
	Poison             claim.Poison
}

type wireBatch struct {
	Now      time.Time
	Leases   []wireLease
	Poisoned []wirePoisoned
}

func batchOf(b claim.Batch) wireBatch {
	w := wireBatch{Now: b.Now}
	for _, l := range b.Leases {
		w.Leases = append(w.Leases, leaseOf(l))
	}
	for _, p := range b.Poisoned {
		w.Poisoned = append(w.Poisoned, wirePoisoned{p.Run, wiredOwner(p.Owner), p.GraphID, p.GraphHash, p.Poison})
	}
	return w
}

func (w wireBatch) batch() claim.Batch {
	b := claim.Batch{Now: w.Now.UTC()}
	for _, l := range w.Leases {
		b.Leases = append(b.Leases, l.lease())
	}
	for _, p := range w.Poisoned {
		b.Poisoned = append(b.Poisoned, claim.PoisonedRun{Run: p.Run, Owner: p.Owner.owner(), GraphID: p.GraphID, GraphHash: p.GraphHash, Poison: p.Poison})
	}
	return b
}

type wireInserted struct {
	Run                string
	Existing, Replayed bool
	Lease              *wireLease
	Err                wireError
}

func insertedOf(in backend.Inserted, err error) wireInserted {
	w := wireInserted{Run: in.Run, Existing: in.Existing, Replayed: in.Replayed, Err: errorOf(err)}
	if in.Lease != nil {
		l := leaseOf(*in.Lease)
		w.Lease = &l
	}
	return w
}

func (w wireInserted) inserted() backend.Inserted {
	in := backend.Inserted{Run: w.Run, Existing: w.Existing, Replayed: w.Replayed}
	if w.Lease != nil {
		l := w.Lease.lease()
		in.Lease = &l
	}
	return in
}

type wireCommitted struct {
	Committed backend.Committed
	Err       wireError
}

type wireInfo struct {
	Owner              wireOwner
	Wake, ClaimedAt    time.Time
	Attempts, Abandons int
	Poison             claim.Poison
	Type               checkpoint.Type
	CheckpointID       checkpoint.ID
}

func infoOf(i backend.Info) wireInfo {
	return wireInfo{wiredOwner(i.Owner), i.Wake, i.ClaimedAt, i.Attempts, i.Abandons, i.Poison, i.Type, i.CheckpointID}
}

func (w wireInfo) info(d *run.Document) backend.Info {
	return backend.Info{
		Document: d, Owner: w.Owner.owner(), Wake: w.Wake.UTC(), ClaimedAt: w.ClaimedAt.UTC(), Attempts: w.Attempts, Abandons: w.Abandons,
		Poison: w.Poison, Type: w.Type, CheckpointID: w.CheckpointID,
	}
}

type wireSummary struct {
	Run                                           string
	Owner                                         wireOwner
	Graph                                         graph.Ref
	Status                                        run.Status
	Seq                                           int64
	StartedAt, UpdatedAt, FinishedAt, Wake, Claim time.Time
	Attempts, Abandons                            int
	Poison                                        claim.Poison
}

func summaryOf(s backend.Summary) wireSummary {
	return wireSummary{
		s.Run, wiredOwner(s.Owner), s.Graph, s.Status, s.Seq, s.StartedAt, s.UpdatedAt, s.FinishedAt, s.Wake, s.ClaimedAt,
		s.Attempts, s.Abandons, s.Poison,
	}
}

func (w wireSummary) summary() backend.Summary {
	return backend.Summary{
		Run: w.Run, Owner: w.Owner.owner(), Graph: w.Graph, Status: w.Status, Seq: w.Seq, StartedAt: w.StartedAt, UpdatedAt: w.UpdatedAt,
		FinishedAt: w.FinishedAt, Wake: w.Wake, ClaimedAt: w.Claim, Attempts: w.Attempts, Abandons: w.Abandons, Poison: w.Poison,
	}
}

type wireDocument struct {
	Raw []byte
	Err wireError
}

func documentOf(d *run.Document, err error) wireDocument {
	w := wireDocument{Err: errorOf(err)}
	if err == nil {
		w.Raw, err = run.Encode(d)
		w.Err = errorOf(err)
	}
	return w
}

func (w wireDocument) document() (*run.Document, error) {
	if err := w.Err.error(); err != nil {
		return nil, err
	}
	return run.Decode(w.Raw)
}

func eventsOf(all ...run.Event) ([][]byte, error) {
	var raws [][]byte
	for _, e := range all {
		raw, err := run.EncodeEvent(e)
		if err != nil {
			return nil, err
		}
		raws = append(raws, raw)
	}
	return raws, nil
}

// wireError is an error: its text, the sentinels that it matches and the facts of those that
// have any. The zero value is none.
type wireError struct {
	Text           string
	Is             []int
	Argument       *claim.ArgumentError
	Fence          *checkpoint.FenceError
	Limit          *value.LimitError
	Corrupt        bool
	Run, What      string
	Infrastructure bool
	Op             string
	Nature         backend.Nature
}

// sentinels are the errors whose identity crosses between processes.
var sentinels = []error{
	backend.ErrInvalidArgument, backend.ErrNotFound, backend.ErrConflict, backend.ErrInvalidCommit, backend.ErrInvalidMutation,
	backend.ErrEventConflict, backend.ErrClaimLost, backend.ErrInactiveRun, backend.ErrInvalidGraphHash, backend.ErrGraphConflict,
	backend.ErrCorruptGraph, backend.ErrCorrupt, backend.ErrBusy, backend.ErrUnsupported, backend.ErrClosed, checkpoint.ErrStaleFence,
	run.ErrInvalidDocument, run.ErrInvalidEvent, run.ErrFormat, value.ErrInvalid, value.ErrTooLarge,
	context.Canceled, context.DeadlineExceeded, errDecided,
}

func errorOf(err error) wireError {
	if err == nil {
		return wireError{}
	}
	w := wireError{Text: err.Error()}
	for i, s := range sentinels {
		if errors.Is(err, s) {
			w.Is = append(w.Is, i)
		}
	}
	errors.As(err, &w.Argument)
	errors.As(err, &w.Fence)
	errors.As(err, &w.Limit)
	if e, ok := errors.AsType[*backend.CorruptError](err); ok {
		w.Corrupt, w.Run, w.What = true, e.Run, e.What
	}
	if e, ok := errors.AsType[*backend.InfrastructureError](err); ok {
		w.Infrastructure, w.Op, w.Nature = true, e.Op, e.Nature
	}
	return w
}

func (w wireError) error() error {
	if w.Text == "" {
		return nil
	}
	return &remoteError{w}
}

// remoteError is an error of another process.
type remoteError struct{ wireError }

func (e *remoteError) Error() string { return e.Text }

func (e *remoteError) Is(target error) bool {
	for _, i := range e.wireError.Is {
		if sentinels[i] == target {
			return true
		}
	}
	return false
}

func (e *remoteError) As(target any) bool {
	switch to := target.(type) {
	case **claim.ArgumentError:
		*to = e.Argument
		return e.Argument != nil
	case **checkpoint.FenceError:
		*to = e.Fence
		return e.Fence != nil
	case **value.LimitError:
		*to = e.Limit
		return e.Limit != nil
	case **backend.CorruptError:
		*to = &backend.CorruptError{Run: e.Run, What: e.What, Err: fmt.Errorf("elsewhere: %s", e.Text)}
		return e.Corrupt
	case **backend.InfrastructureError:
		*to = &backend.InfrastructureError{Op: e.Op, Nature: e.Nature, Err: fmt.Errorf("elsewhere: %s", e.Text)}
		return e.Infrastructure
	}
	return false
}
