package proptest_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
)

// rounded is an instant as a store has it that rounds where it must cut.
func rounded(t time.Time) time.Time { return t.Round(time.Microsecond) }

// instantMutants round, each in one place.
var instantMutants = []mutant{
	{"A2", "the wake of an insert is rounded", editInsert(func(_ *broken, _ *backend.Owner, in *backend.Initialization) {
		in.Schedule.At = rounded(in.Schedule.At)
	})},
	{"A2", "the now of a claim is rounded", editPolicy(func(p *claim.Policy) { p.Now = rounded(p.Now) })},
	{"A2", "the now of a commit is rounded", editCommit(func(_ *broken, _ *backend.Scope, c *backend.Commit) { c.Now = rounded(c.Now) })},
	{"A2", "the wake of a commit is rounded", editCommit(func(_ *broken, _ *backend.Scope, c *backend.Commit) { c.Schedule.At = rounded(c.Schedule.At) })},
	{"A2", "the wake of a mutation is rounded", editMutation(func(p *run.Proposal, _ *run.Document) { p.Schedule.At = rounded(p.Schedule.At) })},
	{"A2", "the now of a mutation is rounded", editMutation(func(p *run.Proposal, _ *run.Document) { p.Now = rounded(p.Now) })},
	{"A2", "the now of a refresh is rounded", func(b *broken) {
		b.refreshClaim = func(id string, t claim.Token, now time.Time) error {
			return b.Store.RefreshClaim(ctx, id, t, rounded(now))
		}
	}},
	{"A2", "the now of a release is rounded", func(b *broken) {
		b.releaseClaim = func(id string, t claim.Token, p claim.ReleasePolicy) error {
			p.Now = rounded(p.Now)
			return b.Store.ReleaseClaim(ctx, id, t, p)
		}
	}},
	{"A2", "the retry-at of an abandon is rounded", editAbandon(func(_ *broken, _ string, _ *claim.Token, p *claim.AbandonPolicy) {
		p.RetryAt = rounded(p.RetryAt)
	})},
	{"A2", "the now of a recovery is rounded", func(b *broken) {
		b.recoverRun = func(s backend.Scope, id string, now time.Time) error {
			return b.Store.RetryPoisonedRun(ctx, s, id, rounded(now))
		}
	}},
	{"A2", "the cursor of a list is rounded", editQuery(func(_ *backend.Scope, q *backend.Query) { q.Before.StartedAt = rounded(q.Before.StartedAt) })},
	{"A2", "the cursor of versions is rounded", func(b *broken) {
		b.versions = func(o backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error) {
			q.Before.PublishedAt = rounded(q.Before.PublishedAt)
			return b.Store.GraphVersions(ctx, o, id, q)
		}
	}},
	{"A2", "the instant of a prune is rounded", editPrune(func(p *backend.PrunePolicy) { p.Before = rounded(p.Before) })},
	{"A2", "the now of an insert is rounded where a key's window is counted", editInsert(func(_ *broken, _ *backend.Owner, in *backend.Initialization) {
		if in.Key != "" && in.Claim == nil {
			in.Now = rounded(in.Now)
		}
	})},
}

// refusalMutants give another answer of the contract than the one that comes first.
var refusalMutants = []mutant{
	{"T1", "another identity is told of a run out of scope", editRefusal(func(b *broken, s backend.Scope, c backend.Commit, err error) error {
		if i, there := b.info(c.Document.ID); there && errors.Is(err, backend.ErrNotFound) && i.Document.Graph != c.Document.Graph {
			return backend.ErrInvalidCommit
		}
		return err
	})},
	{"T1", "the fence is told before the identity", editRefusal(func(b *broken, s backend.Scope, c backend.Commit, err error) error {
		i, there := b.info(c.Document.ID)
		if there && errors.Is(err, backend.ErrInvalidCommit) && i.Document.Graph != c.Document.Graph && b.Store.RefreshClaim(ctx, c.Document.ID, c.Token, time.Unix(0, 0)) != nil {
			return &checkpoint.FenceError{Stored: i.Document.Seq, Presented: c.Expected}
		}
		return err
	})},
	{"T1", "a contradicted event is told before the fence", editRefusal(func(b *broken, s backend.Scope, c backend.Commit, err error) error {
		if errors.Is(err, checkpoint.ErrStaleFence) {
			for _, e := range c.Events {
				if stored, failed := b.Store.FetchEvent(ctx, s, e.Run, e.Seq); failed == nil && (stored.Type != e.Type || stored.Node != e.Node) {
					return backend.ErrEventConflict
				}
			}
		}
		return err
	})},
	{"T1", "a replay is told before the identity", editRefusal(func(b *broken, s backend.Scope, c backend.Commit, err error) error {
		if i, there := b.info(c.Document.ID); there && errors.Is(err, backend.ErrInvalidCommit) && i.CheckpointID == c.CheckpointID {
			return nil
		}
		return err
	})},
	{"T1", "an absent run is told before events that contradict each other", editRefusal(func(b *broken, s backend.Scope, c backend.Commit, err error) error {
		if _, there := b.info(c.Document.ID); !there && errors.Is(err, backend.ErrEventConflict) {
			return backend.ErrNotFound
		}
		return err
	})},
	{"T5", "a replay wants the token to hold the run still", func(b *broken) {
		b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
			done, err := b.Store.Commit(ctx, s, c)
			if i, there := b.info(c.Document.ID); done.Replayed && there && i.ClaimedAt.IsZero() {
				return backend.Committed{}, &checkpoint.FenceError{Stored: i.Document.Seq, Presented: c.Expected}
			}
			return done, err
		}
	}},
	{"R1", "a taken id is told before an absent graph", func(b *broken) {
		b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
			done, err := b.Store.InsertRun(ctx, o, in)
			if errors.Is(err, backend.ErrNotFound) {
				if _, there := b.info(in.Document.ID); there {
					return done, backend.ErrConflict
				}
			}
			return done, err
		}
	}},
	{"R1", "the graph of another owner will do", func(b *broken) {
		b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
			done, err := b.Store.InsertRun(ctx, o, in)
			if errors.Is(err, backend.ErrNotFound) {
				for _, other := range []backend.Owner{backend.Tenantless(), backend.Tenant("acme"), backend.Tenant("globex")} {
					if raw, failed := b.Store.FetchGraph(ctx, other, in.Document.Graph); failed == nil {
						_ = b.Store.SaveGraph(ctx, o, in.Document.Graph, raw)
						return b.Store.InsertRun(ctx, o, in)
					}
				}
			}
			return done, err
		}
	}},
	{"T3", "a mutation gives up when the run moves under it", func(b *broken) {
		b.mutateRun = func(s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
			seen, err := b.Store.FetchRun(ctx, s, id)
			if err != nil || fn == nil {
				return b.Store.MutateRun(ctx, s, id, c, fn)
			}
			return b.Store.MutateRun(ctx, s, id, c, func(current *run.Document) (backend.Mutation, error) {
				if current.Seq != seen.Seq {
					return backend.Mutation{}, backend.ErrBusy
				}
				return fn(current)
			})
		}
	}},
	{"T3", "a mutation looks at no scope", func(b *broken) {
		b.mutateRun = func(s backend.Scope, id string, c checkpoint.ID, fn backend.MutateFunc) (backend.Mutated, error) {
			if s.Validate() == nil {
				s = backend.System()
			}
			return b.Store.MutateRun(ctx, s, id, c, fn)
		}
	}},
	{"C2", "the token of before the poison commits", func(b *broken) {
		b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
			done, err := b.Store.Commit(ctx, s, c)
			return done, b.lateCommit(s, c, err)
		}
	}},
	{"T6", "the token of before the poison commits in a group", func(b *broken) {
		editBatches(func(s *brokenBatches) {
			s.commits = func(sc backend.Scope, cs []backend.Commit) []backend.CommitResult {
				results := s.Batches.Commits(ctx, sc, cs)
				for i, c := range cs {
					results[i].Err = b.lateCommit(sc, c, results[i].Err)
				}
				return results
			}
		})(b)
	}},
}

// lateCommit applies a commit that the fence refused, when the run has been poisoned at the sequence that
// it builds on.
func (b *broken) lateCommit(s backend.Scope, c backend.Commit, err error) error {
	if i, there := b.info(c.Document.ID); !there || !errors.Is(err, checkpoint.ErrStaleFence) || i.Poison.At.IsZero() || i.Document.Seq != c.Expected {
		return err
	}
	_, failed := b.Store.MutateRun(ctx, s, c.Document.ID, c.CheckpointID, func(*run.Document) (backend.Mutation, error) {
		p := c.Proposal
		if p.Schedule.Kind == checkpoint.Retain {
			p.Schedule.Kind = checkpoint.ReleaseNow
		}
		return backend.Mutation{Proposal: &p}, nil
	})
	return failed
}

// editRefusal changes what a refused commit of a well-formed run is told.
func editRefusal(edit func(b *broken, s backend.Scope, c backend.Commit, err error) error) func(b *broken) {
	return func(b *broken) {
		b.commitRun = func(s backend.Scope, c backend.Commit) (backend.Committed, error) {
			done, err := b.Store.Commit(ctx, s, c)
			if err != nil && s.Validate() == nil && c.Document != nil {
				if err = edit(b, s, c, err); err == nil {
					done.Replayed = true
				}
			}
			return done, err
		}
	}
}

// cornerMutants are right but for one corner.
var cornerMutants = []mutant{
	{"K1", "a TTL of zero is none", editPolicy(func(p *claim.Policy) {
		if p.TTL == 0 {
			p.TTL = 1000 * time.Hour
		}
	})},
	{"K2", "the reservation begins at a limit of 3", func(b *broken) {
		b.selects(func(cs []candidate, p claim.Policy) []candidate {
			if p.Limit == 2 {
				return cs
			}
			return as(cs, p)
		})
	}},
	{"K2", "the reservation passes over runs that are to be poisoned", func(b *broken) {
		b.selects(func(cs []candidate, p claim.Policy) []candidate {
			if p.Limit < 2 {
				return as(cs, p)
			}
			for _, expired := range []bool{true, false} {
				if i := slices.IndexFunc(cs, func(c candidate) bool {
					info, _ := b.info(c.id)
					return c.expired == expired && info.Attempts < p.MaxAttempts
				}); i > 0 {
					head := cs[i]
					cs = slices.Insert(slices.Delete(cs, i, i+1), 0, head)
				}
			}
			return cs
		})
	}},
	{"K3", "the poison that a claim tells is of before", editBatch(func(batch *claim.Batch) {
		for i := range batch.Poisoned {
			batch.Poisoned[i].Poison.At = batch.Poisoned[i].Poison.At.Add(-time.Microsecond)
		}
	})},
	{"K9", "never-poison abandons have a counter of their own", func(b *broken) {
		never := notes[string, int]{}
		b.abandonClaim = func(id string, t claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
			if !p.NeverPoison && p.MaxAbandons > 0 {
				p.MaxAbandons += never.get(id)
			}
			d, err := b.Store.AbandonClaim(ctx, id, t, p)
			if err == nil && d == claim.Rescheduled && p.NeverPoison {
				never.set(id, never.get(id)+1)
			}
			return d, err
		}
	}},
	{"K10", "recovery keeps the abandons", func(b *broken) {
		kept := notes[string, int]{}
		b.recoverRun = func(s backend.Scope, id string, now time.Time) error {
			i, there := b.info(id)
			err := b.Store.RetryPoisonedRun(ctx, s, id, now)
			if err == nil && there && i.Poison.Reason != "" {
				kept.set(id, i.Abandons)
			}
			return err
		}
		b.lies(func(i *backend.Info) {
			if !i.Wake.IsZero() && i.Abandons == 0 {
				i.Abandons = kept.get(i.Document.ID)
			}
		})
	}},
	{"A5", "a claim is an update", func(b *broken) {
		b.inspectRun = func(s backend.Scope, id string) (backend.Info, error) {
			i, err := b.Store.InspectRun(ctx, s, id)
			if err == nil && i.ClaimedAt.After(i.Document.UpdatedAt) {
				d := *i.Document
				d.UpdatedAt, i.Document = i.ClaimedAt, &d
			}
			return i, err
		}
	}},
	{"R2", "a key belongs to one version of the graph", editInsert(func(_ *broken, _ *backend.Owner, in *backend.Initialization) {
		if in.Key != "" && len(in.Key) < 200 && in.Document != nil && len(in.Document.Graph.Hash) > 6 {
			in.Key += in.Document.Graph.Hash[:6]
		}
	})},
	{"R2", "a key's window has passed only after its end", func(b *broken) {
		b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
			if in.Window > 0 {
				in.Window += time.Microsecond
			}
			return b.Store.InsertRun(ctx, o, in)
		}
	}},
	{"R5", "the graph id filter is ignored", editQuery(func(_ *backend.Scope, q *backend.Query) { q.GraphID = "" })},
	{"E2", "an empty page of events forgets its cursor", editEvents(func(page *backend.EventPage) {
		if len(page.Events) == 0 {
			page.Next = 0
		}
	})},
	{"E2", "an empty page of events knows no bounds", editEvents(func(page *backend.EventPage) {
		if len(page.Events) == 0 {
			page.Oldest, page.Latest = 0, 0
		}
	})},
	{"E2", "a full page of events always has more", func(b *broken) {
		b.listEvents = func(s backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
			page, err := b.Store.ListEvents(ctx, s, id, q)
			page.HasMore = page.HasMore || err == nil && len(page.Events) == q.Limit
			return page, err
		}
	}},
	{"G3", "the cursor of versions is inclusive", editVersions(func(q *backend.GraphQuery, _ *backend.GraphPage) {
		if q != nil && q.Before.Hash != "" {
			q.Before.Hash += "g"
		}
	})},
	{"G3", "the cursor of versions knows only the instant", editVersions(func(q *backend.GraphQuery, _ *backend.GraphPage) {
		if q != nil {
			q.Before.Hash = ""
		}
	})},
	{"G3", "a full page of versions always has more", func(b *broken) {
		b.versions = func(o backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error) {
			page, err := b.Store.GraphVersions(ctx, o, id, q)
			page.HasMore = page.HasMore || err == nil && len(page.Versions) == q.Limit
			return page, err
		}
	}},
	{"G3", "an empty page of versions forgets its cursor", editVersions(func(_ *backend.GraphQuery, page *backend.GraphPage) {
		if page != nil && len(page.Versions) == 0 {
			page.Next = backend.GraphCursor{}
		}
	})},
	{"G3", "versions of one instant are ascending", editVersions(func(_ *backend.GraphQuery, page *backend.GraphPage) {
		if page != nil {
			slices.SortStableFunc(page.Versions, func(x, y backend.GraphVersion) int {
				if x.PublishedAt.Equal(y.PublishedAt) && x.Ref.Hash < y.Ref.Hash {
					return -1
				}
				return 0
			})
		}
	})},
	{"X7", "the key of a deleted run stays held", func(b *broken) {
		type taken struct {
			run   string
			until time.Time
		}
		keys := notes[graph.Ref, taken]{}
		b.insertRun = func(o backend.Owner, in backend.Initialization) (backend.Inserted, error) {
			at := graph.Ref{}
			if in.Key != "" && in.Document != nil {
				at = graph.Ref{ID: o.String() + "/" + in.Document.Graph.ID, Hash: in.Key}
				if k := keys.get(at); k.run != "" && in.Now.Before(k.until) {
					if _, there := b.info(k.run); !there {
						return backend.Inserted{Run: k.run, Existing: true}, nil
					}
				}
			}
			done, err := b.Store.InsertRun(ctx, o, in)
			if err == nil && at.ID != "" && !done.Existing && !done.Replayed {
				keys.set(at, taken{done.Run, in.Now.Add(in.Window)})
			}
			return done, err
		}
	}},
	{"X7", "retention always deletes graphs", editPrune(func(p *backend.PrunePolicy) { p.Graphs = true })},
	{"X7", "retention tells nothing of what is left", editPruned(func(p *backend.Pruned) { p.More = false })},
	{"X7", "retention always has more", editPruned(func(p *backend.Pruned) { p.More = true })},
	{"X7", "retention does not count events", editPruned(func(p *backend.Pruned) { p.Events = 0 })},
	{"X10", "the cap forgets claims that have expired", func(b *broken) {
		b.claimDue = func(p claim.Policy) (claim.Batch, error) {
			if p.OwnerCap > 0 && p.Limit > 0 {
				for _, c := range b.candidates(p) {
					if c.expired {
						p.OwnerCap++
					}
				}
			}
			return b.Store.ClaimDue(ctx, p)
		}
	}},
	{"X10", "the cap counts everybody's claims", func(b *broken) {
		b.claimDue = func(p claim.Policy) (claim.Batch, error) {
			if p.OwnerCap > 1 && p.Limit > 0 {
				for _, i := range b.infos() {
					if !i.ClaimedAt.IsZero() {
						p.OwnerCap = max(1, p.OwnerCap-1)
					}
				}
			}
			return b.Store.ClaimDue(ctx, p)
		}
	}},
}

func editVersions(edit func(q *backend.GraphQuery, page *backend.GraphPage)) func(b *broken) {
	return func(b *broken) {
		b.versions = func(o backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error) {
			edit(&q, nil)
			page, err := b.Store.GraphVersions(ctx, o, id, q)
			edit(nil, &page)
			return page, err
		}
	}
}

// countedRetention tells other counts than those of what it deleted.
type countedRetention struct {
	backend.Retention
	edit func(p *backend.Pruned)
}

func (r countedRetention) Prune(ctx context.Context, p backend.PrunePolicy) (backend.Pruned, error) {
	pruned, err := r.Retention.Prune(ctx, p)
	if err == nil {
		r.edit(&pruned)
	}
	return pruned, err
}

func editPruned(edit func(p *backend.Pruned)) func(b *broken) {
	return func(b *broken) { b.features.Retention = countedRetention{b.features.Retention, edit} }
}
