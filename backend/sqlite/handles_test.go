package sqlite_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/sqlite"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// handles is several stores on one file, used in turn: what one writes the next one must
// see, and each has a writer, a clock and a memory of its own.
type handles struct {
	all  []*sqlite.Store
	turn atomic.Uint64
}

func (h *handles) next() *sqlite.Store { return h.all[h.turn.Add(1)%uint64(len(h.all))] }

func (h *handles) Features() backend.Features {
	return backend.Features{
		StartClaimed: true, Batches: h, ClaimDocuments: h, ClaimFilter: true, Wakes: h, Clock: h, Retention: h, Audit: h.all[0], OwnerCap: true,
	}
}

func (h *handles) Close() error {
	var errs []error
	for _, s := range h.all {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

func (h *handles) InsertRun(ctx context.Context, o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
	return h.next().InsertRun(ctx, o, in)
}

func (h *handles) FetchRun(ctx context.Context, s backend.Scope, id string) (*run.Document, error) {
	return h.next().FetchRun(ctx, s, id)
}

func (h *handles) InspectRun(ctx context.Context, s backend.Scope, id string) (backend.Info, error) {
	return h.next().InspectRun(ctx, s, id)
}

func (h *handles) ListRuns(ctx context.Context, s backend.Scope, q backend.Query) (backend.Page, error) {
	return h.next().ListRuns(ctx, s, q)
}

func (h *handles) ClaimDue(ctx context.Context, p claim.Policy) (claim.Batch, error) {
	return h.next().ClaimDue(ctx, p)
}

func (h *handles) RefreshClaim(ctx context.Context, id string, t claim.Token, now time.Time) error {
	return h.next().RefreshClaim(ctx, id, t, now)
}

func (h *handles) ReleaseClaim(ctx context.Context, id string, t claim.Token, p claim.ReleasePolicy) error {
	return h.next().ReleaseClaim(ctx, id, t, p)
}

func (h *handles) AbandonClaim(ctx context.Context, id string, t claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	return h.next().AbandonClaim(ctx, id, t, p)
}

func (h *handles) RetryPoisonedRun(ctx context.Context, s backend.Scope, id string, now time.Time) error {
	return h.next().RetryPoisonedRun(ctx, s, id, now)
}

func (h *handles) Commit(ctx context.Context, s backend.Scope, c backend.Commit) (backend.Committed, error) {
	return h.next().Commit(ctx, s, c)
}

func (h *handles) MutateRun(ctx context.Context, s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
	return h.next().MutateRun(ctx, s, id, c, fn)
}

func (h *handles) FetchEvent(ctx context.Context, s backend.Scope, id string, seq int64) (run.Event, error) {
	return h.next().FetchEvent(ctx, s, id, seq)
}

func (h *handles) LatestEvent(ctx context.Context, s backend.Scope, id string) (*run.Event, error) {
	return h.next().LatestEvent(ctx, s, id)
}

func (h *handles) ListEvents(ctx context.Context, s backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
	return h.next().ListEvents(ctx, s, id, q)
}

func (h *handles) SaveGraph(ctx context.Context, o backend.Owner, ref graph.Ref, raw value.Value) error {
	return h.next().SaveGraph(ctx, o, ref, raw)
}

func (h *handles) FetchGraph(ctx context.Context, o backend.Owner, ref graph.Ref) (value.Value, error) {
	return h.next().FetchGraph(ctx, o, ref)
}

func (h *handles) LatestGraph(ctx context.Context, o backend.Owner, id string) (backend.GraphVersion, error) {
	return h.next().LatestGraph(ctx, o, id)
}

func (h *handles) GraphVersions(ctx context.Context, o backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error) {
	return h.next().GraphVersions(ctx, o, id, q)
}

func (h *handles) InsertRuns(ctx context.Context, o backend.Owner, ins []backend.Initialization) []backend.InsertResult {
	return h.next().InsertRuns(ctx, o, ins)
}

func (h *handles) Commits(ctx context.Context, s backend.Scope, cs []backend.Commit) []backend.CommitResult {
	return h.next().Commits(ctx, s, cs)
}

func (h *handles) RefreshClaims(ctx context.Context, claims []backend.Held, now time.Time) []error {
	return h.next().RefreshClaims(ctx, claims, now)
}

func (h *handles) ClaimDueDocuments(ctx context.Context, p claim.Policy) (backend.ClaimedBatch, error) {
	return h.next().ClaimDueDocuments(ctx, p)
}

func (h *handles) Subscribe(ctx context.Context) (<-chan struct{}, error) {
	return h.next().Subscribe(ctx)
}

func (h *handles) Now(ctx context.Context) (time.Time, error) { return h.next().Now(ctx) }

func (h *handles) Prune(ctx context.Context, p backend.PrunePolicy) (backend.Pruned, error) {
	return h.next().Prune(ctx, p)
}
