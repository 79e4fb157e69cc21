package procstore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// Several is stores on one database, used in turn: what one writes the next one must see, and each
// has connections, a clock and a memory of its own.
type Several struct {
	all  []Waking
	turn atomic.Uint64
}

// Waking is a Store that tells of wakes.
type Waking interface {
	Store
	backend.Wakes
}

// NewSeveral makes one store of all, of which there is one at least.
func NewSeveral(all ...Waking) *Several { return &Several{all: all} }

func (h *Several) next() Waking { return h.all[h.turn.Add(1)%uint64(len(h.all))] }

// Features implements backend.Store.
func (h *Several) Features() backend.Features {
	return backend.Features{
		StartClaimed: true, Batches: h, ClaimDocuments: h, ClaimFilter: true, Wakes: h, Clock: h, Retention: h, Audit: h.all[0].Features().Audit, OwnerCap: true,
	}
}

// Close is the call of that name.
func (h *Several) Close() error {
	var errs []error
	for _, s := range h.all {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// InsertRun is the call of that name.
func (h *Several) InsertRun(ctx context.Context, o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
	return h.next().InsertRun(ctx, o, in)
}

// FetchRun is the call of that name.
func (h *Several) FetchRun(ctx context.Context, s backend.Scope, id string) (*run.Document, error) {
	return h.next().FetchRun(ctx, s, id)
}

// InspectRun is the call of that name.
func (h *Several) InspectRun(ctx context.Context, s backend.Scope, id string) (backend.Info, error) {
	return h.next().InspectRun(ctx, s, id)
}

// ListRuns is the call of that name.
func (h *Several) ListRuns(ctx context.Context, s backend.Scope, q backend.Query) (backend.Page, error) {
	return h.next().ListRuns(ctx, s, q)
}

// ClaimDue is the call of that name.
func (h *Several) ClaimDue(ctx context.Context, p claim.Policy) (claim.Batch, error) {
	return h.next().ClaimDue(ctx, p)
}

// RefreshClaim is the call of that name.
func (h *Several) RefreshClaim(ctx context.Context, id string, t claim.Token, now time.Time) error {
	return h.next().RefreshClaim(ctx, id, t, now)
}

// ReleaseClaim is the call of that name.
func (h *Several) ReleaseClaim(ctx context.Context, id string, t claim.Token, p claim.ReleasePolicy) error {
	return h.next().ReleaseClaim(ctx, id, t, p)
}

// AbandonClaim is the call of that name.
func (h *Several) AbandonClaim(ctx context.Context, id string, t claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	return h.next().AbandonClaim(ctx, id, t, p)
}

// RetryPoisonedRun is the call of that name.
func (h *Several) RetryPoisonedRun(ctx context.Context, s backend.Scope, id string, now time.Time) error {
	return h.next().RetryPoisonedRun(ctx, s, id, now)
}

// Commit is the call of that name.
func (h *Several) Commit(ctx context.Context, s backend.Scope, c backend.Commit) (backend.Committed, error) {
	return h.next().Commit(ctx, s, c)
}

// MutateRun is the call of that name.
func (h *Several) MutateRun(ctx context.Context, s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
	return h.next().MutateRun(ctx, s, id, c, fn)
}

// FetchEvent is the call of that name.
func (h *Several) FetchEvent(ctx context.Context, s backend.Scope, id string, seq int64) (run.Event, error) {
	return h.next().FetchEvent(ctx, s, id, seq)
}

// LatestEvent is the call of that name.
func (h *Several) LatestEvent(ctx context.Context, s backend.Scope, id string) (*run.Event, error) {
	return h.next().LatestEvent(ctx, s, id)
}

// ListEvents is the call of that name.
func (h *Several) ListEvents(ctx context.Context, s backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
	return h.next().ListEvents(ctx, s, id, q)
}

// SaveGraph is the call of that name.
func (h *Several) SaveGraph(ctx context.Context, o backend.Owner, ref graph.Ref, raw value.Value) error {
	return h.next().SaveGraph(ctx, o, ref, raw)
}

// FetchGraph is the call of that name.
func (h *Several) FetchGraph(ctx context.Context, o backend.Owner, ref graph.Ref) (value.Value, error) {
	return h.next().FetchGraph(ctx, o, ref)
}

// LatestGraph is the call of that name.
func (h *Several) LatestGraph(ctx context.Context, o backend.Owner, id string) (backend.GraphVersion, error) {
	return h.next().LatestGraph(ctx, o, id)
}

// GraphVersions is the call of that name.
func (h *Several) GraphVersions(ctx context.Context, o backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error) {
	return h.next().GraphVersions(ctx, o, id, q)
}

// InsertRuns is the call of that name.
func (h *Several) InsertRuns(ctx context.Context, o backend.Owner, ins []backend.Initialization) []backend.InsertResult {
	return h.next().InsertRuns(ctx, o, ins)
}

// Commits is the call of that name.
func (h *Several) Commits(ctx context.Context, s backend.Scope, cs []backend.Commit) []backend.CommitResult {
	return h.next().Commits(ctx, s, cs)
}

// RefreshClaims is the call of that name.
func (h *Several) RefreshClaims(ctx context.Context, claims []backend.Held, now time.Time) []error {
	return h.next().RefreshClaims(ctx, claims, now)
}

// ClaimDueDocuments is the call of that name.
func (h *Several) ClaimDueDocuments(ctx context.Context, p claim.Policy) (backend.ClaimedBatch, error) {
	return h.next().ClaimDueDocuments(ctx, p)
}

// Subscribe is the call of that name.
func (h *Several) Subscribe(ctx context.Context) (<-chan struct{}, error) {
	return h.next().Subscribe(ctx)
}

// Now is the call of that name.
func (h *Several) Now(ctx context.Context) (time.Time, error) { return h.next().Now(ctx) }

// Prune is the call of that name.
func (h *Several) Prune(ctx context.Context, p backend.PrunePolicy) (backend.Pruned, error) {
	return h.next().Prune(ctx, p)
}
