package proptest_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

func editQuery(edit func(s *backend.Scope, q *backend.Query)) func(b *broken) {
	return func(b *broken) {
		b.listRuns = func(s backend.Scope, q backend.Query) (backend.Page, error) {
			if s.Validate() == nil && q.Limit >= 1 && q.Limit <= backend.MaxLimit {
				edit(&s, &q)
			}
			return b.Store.ListRuns(ctx, s, q)
		}
	}
}

func editPage(edit func(q backend.Query, page *backend.Page)) func(b *broken) {
	return func(b *broken) {
		b.listRuns = func(s backend.Scope, q backend.Query) (backend.Page, error) {
			page, err := b.Store.ListRuns(ctx, s, q)
			if err == nil {
				edit(q, &page)
			}
			return page, err
		}
	}
}

// readMutants break lists, events and graphs.
var readMutants = []mutant{
	{"R5", "a list leaks other tenants' runs", editQuery(func(s *backend.Scope, _ *backend.Query) { *s = backend.System() })},
	{"R5", "the cursor is inclusive", editQuery(func(_ *backend.Scope, q *backend.Query) {
		if q.Before.Run != "" && q.Limit > 1 {
			q.Before.Run += "\x01"
		}
	})},
	{"R5", "the cursor knows only the instant", editQuery(func(_ *backend.Scope, q *backend.Query) { q.Before.Run = "" })},
	{"R5", "the status filter is ignored", editQuery(func(_ *backend.Scope, q *backend.Query) { q.Statuses = nil })},
	{"R5", "only the first status filters", editQuery(func(_ *backend.Scope, q *backend.Query) { q.Statuses = q.Statuses[:min(1, len(q.Statuses))] })},
	{"R5", "the graph hash filter is ignored", editQuery(func(_ *backend.Scope, q *backend.Query) { q.GraphHash = "" })},
	{"R5", "a full page always has more", editPage(func(q backend.Query, page *backend.Page) { page.HasMore = len(page.Runs) == q.Limit })},
	{"R5", "an empty page forgets its cursor", editPage(func(_ backend.Query, page *backend.Page) {
		if len(page.Runs) == 0 {
			page.Next = backend.Cursor{}
		}
	})},
	{"R5", "runs of one instant are ascending", editPage(func(q backend.Query, page *backend.Page) {
		slices.SortStableFunc(page.Runs, func(x, y backend.Summary) int {
			return cmp.Or(y.StartedAt.Compare(x.StartedAt), strings.Compare(x.Run, y.Run))
		})
	})},
	{"A6", "an inspection looks at no scope", func(b *broken) {
		b.inspectRun = func(s backend.Scope, id string) (backend.Info, error) {
			if s.Validate() == nil {
				s = backend.System()
			}
			return b.Store.InspectRun(ctx, s, id)
		}
	}},
	{"A6", "a hidden run has an error of its own", func(b *broken) {
		b.fetchRun = func(s backend.Scope, id string) (*run.Document, error) {
			d, err := b.Store.FetchRun(ctx, s, id)
			if _, there := b.info(id); errors.Is(err, backend.ErrNotFound) && there {
				err = errors.Join(err, errors.New("not yours"))
			}
			return d, err
		}
	}},
	{"A6", "events are read in no scope", func(b *broken) {
		b.listEvents = func(s backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
			if s.Validate() == nil {
				s = backend.System()
			}
			return b.Store.ListEvents(ctx, s, id, q)
		}
	}},
	{"A1", "an oversized run id is merely not found", func(b *broken) {
		b.fetchRun = func(s backend.Scope, id string) (*run.Document, error) {
			if len(id) > claim.MaxID {
				return nil, backend.ErrNotFound
			}
			return b.Store.FetchRun(ctx, s, id)
		}
	}},
	{"A1", "the zero scope is the system", func(b *broken) {
		b.fetchRun = func(s backend.Scope, id string) (*run.Document, error) {
			if s == (backend.Scope{}) {
				s = backend.System()
			}
			return b.Store.FetchRun(ctx, s, id)
		}
	}},
	{"A1", "a limit of zero is a default", editLimit(func(q *backend.Query) {
		if q.Limit == 0 {
			q.Limit = 10
		}
	})},
	{"A1", "a limit over the largest is cut", editLimit(func(q *backend.Query) { q.Limit = min(q.Limit, backend.MaxLimit) })},
	{"E2", "events are listed from their cursor on", func(b *broken) {
		b.listEvents = func(s backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
			if q.After > 0 && q.Limit > 1 {
				q.After--
			}
			return b.Store.ListEvents(ctx, s, id, q)
		}
	}},
	{"E2", "oldest is the page's, not the run's", editEvents(func(page *backend.EventPage) {
		if len(page.Events) > 0 {
			page.Oldest = page.Events[0].Seq
		}
	})},
	{"E2", "latest is the page's, not the run's", editEvents(func(page *backend.EventPage) { page.Latest = page.Next })},
	{"E2", "an events page never has more", editEvents(func(page *backend.EventPage) { page.HasMore = false })},
	{"E2", "the latest event is the first", func(b *broken) {
		b.latestEvent = func(s backend.Scope, id string) (*run.Event, error) {
			e, err := b.Store.LatestEvent(ctx, s, id)
			if e != nil {
				if first, err := b.Store.FetchEvent(ctx, s, id, 1); err == nil {
					return &first, nil
				}
			}
			return e, err
		}
	}},
	{"G1", "any hash is taken", func(b *broken) {
		b.saveGraph = func(o backend.Owner, ref graph.Ref, raw value.Value) error {
			if err := b.Store.SaveGraph(ctx, o, ref, raw); !errors.Is(err, backend.ErrInvalidGraphHash) {
				return err
			}
			return nil
		}
	}},
	{"G1", "graphs belong to everybody", func(b *broken) {
		b.fetchGraph = func(o backend.Owner, ref graph.Ref) (value.Value, error) {
			raw, err := b.Store.FetchGraph(ctx, o, ref)
			for _, other := range []backend.Owner{backend.Tenantless(), backend.Tenant("acme"), backend.Tenant("globex")} {
				if errors.Is(err, backend.ErrNotFound) {
					raw, err = b.Store.FetchGraph(ctx, other, ref)
				}
			}
			return raw, err
		}
	}},
	{"G1", "publishing again renews the publication instant", func(b *broken) {
		again := notes[graph.Ref, time.Duration]{}
		b.saveGraph = func(o backend.Owner, ref graph.Ref, raw value.Value) error {
			if _, err := b.Store.FetchGraph(ctx, o, ref); err == nil {
				again.set(ref, again.get(ref)+time.Second)
			}
			return b.Store.SaveGraph(ctx, o, ref, raw)
		}
		b.versions = func(o backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error) {
			page, err := b.Store.GraphVersions(ctx, o, id, q)
			for i := range page.Versions {
				page.Versions[i].PublishedAt = page.Versions[i].PublishedAt.Add(again.get(page.Versions[i].Ref))
			}
			return page, err
		}
	}},
	{"G3", "versions are ascending", func(b *broken) {
		b.versions = func(o backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error) {
			page, err := b.Store.GraphVersions(ctx, o, id, q)
			slices.Reverse(page.Versions)
			return page, err
		}
	}},
	{"G3", "the latest version is the first one", func(b *broken) {
		b.latestGraph = func(o backend.Owner, id string) (backend.GraphVersion, error) {
			v, err := b.Store.LatestGraph(ctx, o, id)
			if page, _ := b.Store.GraphVersions(ctx, o, id, backend.GraphQuery{Limit: backend.MaxLimit}); err == nil && len(page.Versions) > 0 {
				return page.Versions[len(page.Versions)-1], nil
			}
			return v, err
		}
	}},
}

func editLimit(edit func(q *backend.Query)) func(b *broken) {
	return func(b *broken) {
		b.listRuns = func(s backend.Scope, q backend.Query) (backend.Page, error) {
			edit(&q)
			return b.Store.ListRuns(ctx, s, q)
		}
	}
}

func editEvents(edit func(page *backend.EventPage)) func(b *broken) {
	return func(b *broken) {
		b.listEvents = func(s backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
			page, err := b.Store.ListEvents(ctx, s, id, q)
			edit(&page)
			return page, err
		}
	}
}

// featureMutants break what is declared beyond the core.
var featureMutants = []mutant{
	{"T6", "one bad member of a group fails all", editBatches(func(s *brokenBatches) {
		s.commits = func(sc backend.Scope, cs []backend.Commit) []backend.CommitResult {
			results := s.Batches.Commits(ctx, sc, cs)
			for _, r := range results {
				if r.Err != nil {
					for i := range results {
						results[i].Err = r.Err
					}
				}
			}
			return results
		}
	})},
	{"T6", "a group answers in another order", editBatches(func(s *brokenBatches) {
		s.commits = func(sc backend.Scope, cs []backend.Commit) []backend.CommitResult {
			results := s.Batches.Commits(ctx, sc, cs)
			slices.Reverse(results)
			return results
		}
	})},
	{"T6", "a group reaches every scope", editBatches(func(s *brokenBatches) {
		s.commits = func(sc backend.Scope, cs []backend.Commit) []backend.CommitResult {
			if sc.Validate() == nil {
				sc = backend.System()
			}
			return s.Batches.Commits(ctx, sc, cs)
		}
	})},
	{"X2", "a batched refresh of a lost claim succeeds", editBatches(func(s *brokenBatches) {
		s.refreshes = func(held []backend.Held, now time.Time) []error {
			errs := s.Batches.RefreshClaims(ctx, held, now)
			for i := range errs {
				if errs[i] == backend.ErrClaimLost {
					errs[i] = nil
				}
			}
			return errs
		}
	})},
	{"X2", "a batched insert loses the events of its last member", editBatches(func(s *brokenBatches) {
		s.inserts = func(o backend.Owner, ins []backend.Initialization) []backend.InsertResult {
			ins = slices.Clone(ins)
			if n := len(ins); n > 1 && ins[n-2].Document != nil {
				ins[n-2].Events = nil
			}
			return s.Batches.InsertRuns(ctx, o, ins)
		}
	})},
	{"K6", "a claimed document is the one before", func(b *broken) {
		before := notes[string, *run.Document]{}
		commit := b.commitRun
		b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
			if c.Document != nil {
				if i, there := b.info(c.Document.ID); there {
					before.set(c.Document.ID, i.Document)
				}
			}
			return commit(s, c)
		}
		b.features.ClaimDocuments = brokenDocuments{b, &before}
	}},
	{"X5", "wakes are never signalled", func(b *broken) { b.features.Wakes = silent{} }},
	{"X6", "the clock goes back", func(b *broken) { b.features.Clock = &wavering{Clock: b.features.Clock} }},
	{"X7", "a run that finished at the instant is deleted", editPrune(func(p *backend.PrunePolicy) { p.Before = p.Before.Add(time.Microsecond) })},
	{"X7", "a dry run deletes", editPrune(func(p *backend.PrunePolicy) { p.DryRun = false })},
	{"X7", "statuses do not narrow", editPrune(func(p *backend.PrunePolicy) {
		if !slices.Contains(p.Statuses, run.Running) {
			p.Statuses = nil
		}
	})},
	{"X7", "one run more than the limit is deleted", editPrune(func(p *backend.PrunePolicy) {
		if p.Limit >= 1 && p.Limit < backend.MaxLimit {
			p.Limit++
		}
	})},
}

// brokenBatches are the memory backend's batches with one of them replaced.
type brokenBatches struct {
	backend.Batches
	inserts   func(o backend.Owner, ins []backend.Initialization) []backend.InsertResult
	commits   func(s backend.Scope, cs []backend.Commit) []backend.CommitResult
	refreshes func(held []backend.Held, now time.Time) []error
}

func editBatches(edit func(s *brokenBatches)) func(b *broken) {
	return func(b *broken) {
		s := &brokenBatches{Batches: b.Store.Features().Batches}
		edit(s)
		b.features.Batches = s
	}
}

func (s *brokenBatches) InsertRuns(ctx context.Context, o backend.Owner, ins []backend.Initialization) []backend.InsertResult {
	if s.inserts != nil {
		return s.inserts(o, ins)
	}
	return s.Batches.InsertRuns(ctx, o, ins)
}

func (s *brokenBatches) Commits(ctx context.Context, sc backend.Scope, cs []backend.Commit) []backend.CommitResult {
	if s.commits != nil {
		return s.commits(sc, cs)
	}
	return s.Batches.Commits(ctx, sc, cs)
}

func (s *brokenBatches) RefreshClaims(ctx context.Context, held []backend.Held, now time.Time) []error {
	if s.refreshes != nil {
		return s.refreshes(held, now)
	}
	return s.Batches.RefreshClaims(ctx, held, now)
}

// brokenDocuments claims with the documents of before the last commit.
type brokenDocuments struct {
	b      *broken
	before *notes[string, *run.Document]
}

func (d brokenDocuments) ClaimDueDocuments(ctx context.Context, p claim.Policy) (backend.ClaimedBatch, error) {
	batch, err := d.b.Store.Features().ClaimDocuments.ClaimDueDocuments(ctx, p)
	for i, l := range batch.Leases {
		d.b.lend(l)
		if old := d.before.get(l.Run); old != nil {
			batch.Documents[i].Document = old
		}
	}
	return batch, err
}

// silent tells that a subscription is live, and nothing more.
type silent struct{}

func (silent) Subscribe(ctx context.Context) (<-chan struct{}, error) {
	woken := make(chan struct{}, 1)
	woken <- struct{}{}
	context.AfterFunc(ctx, func() { close(woken) })
	return woken, nil
}

// wavering is a clock that goes back now and then.
type wavering struct {
	backend.Clock
	n int
}

func (w *wavering) Now(ctx context.Context) (time.Time, error) {
	now, err := w.Clock.Now(ctx)
	if w.n++; w.n%7 == 0 {
		now = now.Add(-time.Second)
	}
	return now, err
}

// brokenRetention deletes under another policy than the one it was given.
type brokenRetention struct {
	backend.Retention
	edit func(p *backend.PrunePolicy)
}

func (r brokenRetention) Prune(ctx context.Context, p backend.PrunePolicy) (backend.Pruned, error) {
	if !p.Before.IsZero() {
		r.edit(&p)
	}
	return r.Retention.Prune(ctx, p)
}

func editPrune(edit func(p *backend.PrunePolicy)) func(b *broken) {
	return func(b *broken) { b.features.Retention = brokenRetention{b.features.Retention, edit} }
}
