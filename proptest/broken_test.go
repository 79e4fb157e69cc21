package proptest_test

import (
	"context"
	"sync"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/backend/memory"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

var ctx = context.Background()

// broken is the memory backend with one of its operations replaced. What is not replaced
// stays the memory backend's.
type broken struct {
	backend.Store
	features backend.Features
	// line, when set, is what is broken in place of this.
	line *line

	insertRun    func(o backend.Owner, in backend.Initialization) (backend.Inserted, error)
	fetchRun     func(s backend.Scope, id string) (*run.Document, error)
	inspectRun   func(s backend.Scope, id string) (backend.Info, error)
	listRuns     func(s backend.Scope, q backend.Query) (backend.Page, error)
	claimDue     func(p claim.Policy) (claim.Batch, error)
	refreshClaim func(id string, t claim.Token, now time.Time) error
	releaseClaim func(id string, t claim.Token, p claim.ReleasePolicy) error
	abandonClaim func(id string, t claim.Token, p claim.AbandonPolicy) (claim.Disposition, error)
	recoverRun   func(s backend.Scope, id string, now time.Time) error
	commitRun    func(s backend.Scope, c backend.Commit) (backend.Committed, error)
	mutateRun    func(s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error)
	fetchEvent   func(s backend.Scope, id string, seq int64) (run.Event, error)
	latestEvent  func(s backend.Scope, id string) (*run.Event, error)
	listEvents   func(s backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error)
	saveGraph    func(o backend.Owner, ref graph.Ref, raw value.Value) error
	fetchGraph   func(o backend.Owner, ref graph.Ref) (value.Value, error)
	latestGraph  func(o backend.Owner, id string) (backend.GraphVersion, error)
	versions     func(o backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error)

	mu sync.Mutex
	// held is the token of the last lease of each run.
	held map[string]claim.Token
}

// newBroken is a store that is not broken yet. It declares the features that do not go
// round the operations that may be replaced.
func newBroken(o memory.Options) *broken {
	s := memory.New(o)
	b := &broken{Store: s, features: s.Features(), held: map[string]claim.Token{}}
	b.features.Batches, b.features.ClaimDocuments = nil, nil
	b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
		return s.InsertRun(ctx, o, in)
	}
	b.fetchRun = func(sc backend.Scope, id string) (*run.Document, error) { return s.FetchRun(ctx, sc, id) }
	b.inspectRun = func(sc backend.Scope, id string) (backend.Info, error) { return s.InspectRun(ctx, sc, id) }
	b.listRuns = func(sc backend.Scope, q backend.Query) (backend.Page, error) { return s.ListRuns(ctx, sc, q) }
	b.claimDue = func(p claim.Policy) (claim.Batch, error) { return s.ClaimDue(ctx, p) }
	b.refreshClaim = func(id string, t claim.Token, now time.Time) error { return s.RefreshClaim(ctx, id, t, now) }
	b.releaseClaim = func(id string, t claim.Token, p claim.ReleasePolicy) error { return s.ReleaseClaim(ctx, id, t, p) }
	b.abandonClaim = func(id string, t claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
		return s.AbandonClaim(ctx, id, t, p)
	}
	b.recoverRun = func(sc backend.Scope, id string, now time.Time) error { return s.RetryPoisonedRun(ctx, sc, id, now) }
	b.commitRun = func(sc backend.Scope, c backend.Commit) (backend.Committed, error) { return s.Commit(ctx, sc, c) }
	b.mutateRun = func(sc backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
		return s.MutateRun(ctx, sc, id, c, fn)
	}
	b.fetchEvent = func(sc backend.Scope, id string, seq int64) (run.Event, error) { return s.FetchEvent(ctx, sc, id, seq) }
	b.latestEvent = func(sc backend.Scope, id string) (*run.Event, error) { return s.LatestEvent(ctx, sc, id) }
	b.listEvents = func(sc backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
		return s.ListEvents(ctx, sc, id, q)
	}
	b.saveGraph = func(o backend.Owner, ref graph.Ref, raw value.Value) error { return s.SaveGraph(ctx, o, ref, raw) }
	b.fetchGraph = func(o backend.Owner, ref graph.Ref) (value.Value, error) { return s.FetchGraph(ctx, o, ref) }
	b.latestGraph = func(o backend.Owner, id string) (backend.GraphVersion, error) { return s.LatestGraph(ctx, o, id) }
	b.versions = func(o backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error) {
		return s.GraphVersions(ctx, o, id, q)
	}
	return b
}

func (b *broken) Features() backend.Features { return b.features }

func (b *broken) InsertRun(_ context.Context, o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
	inserted, err := b.insertRun(o, in)
	if inserted.Lease != nil {
		b.lend(*inserted.Lease)
	}
	return inserted, err
}

func (b *broken) FetchRun(_ context.Context, s backend.Scope, id string) (*run.Document, error) {
	return b.fetchRun(s, id)
}

func (b *broken) InspectRun(_ context.Context, s backend.Scope, id string) (backend.Info, error) {
	return b.inspectRun(s, id)
}

func (b *broken) ListRuns(_ context.Context, s backend.Scope, q backend.Query) (backend.Page, error) {
	return b.listRuns(s, q)
}

func (b *broken) ClaimDue(_ context.Context, p claim.Policy) (claim.Batch, error) {
	batch, err := b.claimDue(p)
	for _, l := range batch.Leases {
		b.lend(l)
	}
	return batch, err
}

func (b *broken) RefreshClaim(_ context.Context, id string, t claim.Token, now time.Time) error {
	return b.refreshClaim(id, t, now)
}

func (b *broken) ReleaseClaim(_ context.Context, id string, t claim.Token, p claim.ReleasePolicy) error {
	return b.releaseClaim(id, t, p)
}

func (b *broken) AbandonClaim(_ context.Context, id string, t claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	return b.abandonClaim(id, t, p)
}

func (b *broken) RetryPoisonedRun(_ context.Context, s backend.Scope, id string, now time.Time) error {
	return b.recoverRun(s, id, now)
}

func (b *broken) Commit(_ context.Context, s backend.Scope, c backend.Commit) (backend.Committed, error) {
	return b.commitRun(s, c)
}

func (b *broken) MutateRun(_ context.Context, s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
	return b.mutateRun(s, id, c, fn)
}

func (b *broken) FetchEvent(_ context.Context, s backend.Scope, id string, seq int64) (run.Event, error) {
	return b.fetchEvent(s, id, seq)
}

func (b *broken) LatestEvent(_ context.Context, s backend.Scope, id string) (*run.Event, error) {
	return b.latestEvent(s, id)
}

func (b *broken) ListEvents(_ context.Context, s backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
	return b.listEvents(s, id, q)
}

func (b *broken) SaveGraph(_ context.Context, o backend.Owner, ref graph.Ref, raw value.Value) error {
	return b.saveGraph(o, ref, raw)
}

func (b *broken) FetchGraph(_ context.Context, o backend.Owner, ref graph.Ref) (value.Value, error) {
	return b.fetchGraph(o, ref)
}

func (b *broken) LatestGraph(_ context.Context, o backend.Owner, id string) (backend.GraphVersion, error) {
	return b.latestGraph(o, id)
}

func (b *broken) GraphVersions(_ context.Context, o backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error) {
	return b.versions(o, id, q)
}

func (b *broken) lend(l claim.Lease) {
	b.mu.Lock()
	b.held[l.Run] = l.Token
	b.mu.Unlock()
}

// token is the token of the run's last lease, or other when it was never leased.
func (b *broken) token(id string, other claim.Token) claim.Token {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.held[id]; t != "" {
		return t
	}
	return other
}

// info is what the store truly holds of a run.
func (b *broken) info(id string) (backend.Info, bool) {
	i, err := b.Store.InspectRun(ctx, backend.System(), id)
	return i, err == nil
}

// infos is what the store truly holds.
func (b *broken) infos() []backend.Info {
	page, err := b.Store.ListRuns(ctx, backend.System(), backend.Query{Limit: backend.MaxLimit})
	if err != nil {
		return nil
	}
	var infos []backend.Info
	for _, s := range page.Runs {
		if i, there := b.info(s.Run); there {
			infos = append(infos, i)
		}
	}
	return infos
}

// lies makes both reads of operational state show what edit makes of it.
func (b *broken) lies(edit func(i *backend.Info)) {
	b.inspectRun = func(s backend.Scope, id string) (backend.Info, error) {
		i, err := b.Store.InspectRun(ctx, s, id)
		if err == nil {
			edit(&i)
		}
		return i, err
	}
	b.listRuns = func(s backend.Scope, q backend.Query) (backend.Page, error) {
		page, err := b.Store.ListRuns(ctx, s, q)
		for n := range page.Runs {
			r := &page.Runs[n]
			if i, there := b.info(r.Run); there {
				edit(&i)
				r.Wake, r.ClaimedAt, r.Attempts, r.Abandons, r.Poison = i.Wake, i.ClaimedAt, i.Attempts, i.Abandons, i.Poison
			}
		}
		return page, err
	}
}

// notes are what a mutant remembers, safe for concurrent use.
type notes[K comparable, V any] struct {
	mu sync.Mutex
	m  map[K]V
}

// get is the zero value for what was not noted.
func (n *notes[K, V]) get(k K) V {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.m[k]
}

func (n *notes[K, V]) set(k K, v V) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.m == nil {
		n.m = map[K]V{}
	}
	n.m[k] = v
}

func (n *notes[K, V]) forget(k K) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.m, k)
}
