package backend

import (
	"context"
	"errors"
	"time"

	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// FromApart is the Store of a backend of the older shape (clause F1). It declares no
// features. Zero limits mean their defaults.
//
// A run and its events are written in one Transact. A replayed commit is told by the
// run's row; a replayed insert or mutation by the id that Append keeps beside the
// commit's events, since later commits overwrite the row's.
func FromApart(a Apart, limits value.Limits) Store {
	return &joined{apart: a, limits: limits.WithDefaults()}
}

type joined struct {
	apart  Apart
	limits value.Limits
}

var _ Store = (*joined)(nil)

// Features declares nothing.
func (*joined) Features() Features { return Features{} }

// Close closes the backend.
func (j *joined) Close() error { return j.apart.Close() }

func (j *joined) InsertRun(ctx context.Context, owner Owner, in Initialization) (Inserted, error) {
	in, err := CheckInitialization(owner, in, Features{}, j.limits)
	if err != nil {
		return Inserted{}, err
	}
	insert := ApartInsert{ApartProposal: apartProposal(in.Proposal, in.CheckpointID), Key: in.Key, Window: in.Window}
	var done Inserted
	err = j.apart.Transact(ctx, func(runs ApartRuns, events ApartEvents) error {
		var err error
		done, err = runs.InsertRun(ctx, owner, insert)
		if err != nil || done.Existing {
			return err
		}
		return events.Append(ctx, Of(owner), appended(in.Proposal, in.CheckpointID))
	})
	// What stands in the way may be this very insert. Whatever it was is committed, so a
	// look at what is stored now tells.
	if errors.Is(err, ErrConflict) || err == nil && done.Existing {
		seq, lookup := j.apart.CommitSeq(ctx, Of(owner), in.Document.ID, in.CheckpointID)
		switch {
		case lookup == nil && seq == in.Document.Seq:
			return Inserted{Run: in.Document.ID, Replayed: true}, nil
		case lookup != nil && !errors.Is(lookup, ErrNotFound):
			return Inserted{}, lookup
		}
	}
	if err != nil {
		return Inserted{}, err
	}
	return done, nil
}

func (j *joined) Commit(ctx context.Context, scope Scope, c Commit) (Committed, error) {
	c, err := CheckCommit(scope, c, j.limits)
	if err != nil {
		return Committed{}, err
	}
	proposal := apartProposal(c.Proposal, c.CheckpointID)
	var done Committed
	err = j.apart.Transact(ctx, func(runs ApartRuns, events ApartEvents) error {
		var err error
		done, err = runs.Commit(ctx, scope, proposal, c.Token)
		if err != nil || done.Replayed {
			return err
		}
		return events.Append(ctx, scope, appended(c.Proposal, c.CheckpointID))
	})
	if err != nil {
		return Committed{}, err
	}
	return done, nil
}

func (j *joined) MutateRun(ctx context.Context, scope Scope, id string, commit checkpoint.ID, fn MutateFunc) (Mutated, error) {
	if err := CheckMutate(scope, id, commit, fn); err != nil {
		return Mutated{}, err
	}
	var done Mutated
	err := j.apart.Transact(ctx, func(runs ApartRuns, events ApartEvents) error {
		var decided *run.Proposal
		committed, err := runs.MutateRun(ctx, scope, id, func(current *run.Document) (*ApartProposal, error) {
			decided, done = nil, Mutated{Document: current}
			// Looked up while the run is serialized, so that of two equal calls at once the
			// second one sees the first one's commit.
			_, err := events.CommitSeq(ctx, scope, id, commit)
			if err == nil {
				done.Committed, done.Replayed = true, true
				return nil, nil
			}
			if !errors.Is(err, ErrNotFound) {
				return nil, err
			}
			m, err := fn(current)
			if err != nil {
				return nil, err
			}
			done.Value = m.Value
			if m.Proposal == nil {
				return nil, nil
			}
			p, err := CheckMutation(current, *m.Proposal, j.limits)
			if err != nil {
				return nil, err
			}
			decided = &p
			next := apartProposal(p, commit)
			return &next, nil
		})
		if err != nil || !committed {
			return err
		}
		done.Committed, done.Document = true, decided.Document
		return events.Append(ctx, scope, appended(*decided, commit))
	})
	if err != nil {
		return Mutated{}, err
	}
	return done, nil
}

func apartProposal(p run.Proposal, commit checkpoint.ID) ApartProposal {
	return ApartProposal{
		Document: p.Document, Type: p.Type, Schedule: p.Schedule,
		Expected: p.Expected, Now: p.Now, CheckpointID: commit,
	}
}

func appended(p run.Proposal, commit checkpoint.ID) ApartAppend {
	return ApartAppend{Run: p.Document.ID, CheckpointID: commit, Seq: p.Document.Seq, Events: p.Events}
}

func (j *joined) FetchRun(ctx context.Context, scope Scope, id string) (*run.Document, error) {
	if err := CheckRun(scope, id); err != nil {
		return nil, err
	}
	return j.apart.FetchRun(ctx, scope, id)
}

func (j *joined) InspectRun(ctx context.Context, scope Scope, id string) (Info, error) {
	if err := CheckRun(scope, id); err != nil {
		return Info{}, err
	}
	return j.apart.InspectRun(ctx, scope, id)
}

func (j *joined) ListRuns(ctx context.Context, scope Scope, q Query) (Page, error) {
	q, err := CheckQuery(scope, q)
	if err != nil {
		return Page{}, err
	}
	return j.apart.ListRuns(ctx, scope, q)
}

func (j *joined) ClaimDue(ctx context.Context, p claim.Policy) (claim.Batch, error) {
	p, err := CheckPolicy(p, Features{})
	if err != nil {
		return claim.Batch{}, err
	}
	return j.apart.ClaimDue(ctx, p)
}

func (j *joined) RefreshClaim(ctx context.Context, id string, token claim.Token, now time.Time) error {
	if err := CheckClaim(id, token); err != nil {
		return err
	}
	return j.apart.RefreshClaim(ctx, id, token, claim.Instant(now))
}

func (j *joined) ReleaseClaim(ctx context.Context, id string, token claim.Token, p claim.ReleasePolicy) error {
	p, err := CheckRelease(id, token, p)
	if err != nil {
		return err
	}
	return j.apart.ReleaseClaim(ctx, id, token, p)
}

func (j *joined) AbandonClaim(ctx context.Context, id string, token claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	p, err := CheckAbandon(id, token, p)
	if err != nil {
		return claim.Stale, err
	}
	return j.apart.AbandonClaim(ctx, id, token, p)
}

func (j *joined) RetryPoisonedRun(ctx context.Context, scope Scope, id string, now time.Time) error {
	if err := CheckRun(scope, id); err != nil {
		return err
	}
	return j.apart.RetryPoisonedRun(ctx, scope, id, claim.Instant(now))
}

func (j *joined) FetchEvent(ctx context.Context, scope Scope, id string, seq int64) (run.Event, error) {
	if err := CheckEvent(scope, id, seq); err != nil {
		return run.Event{}, err
	}
	return j.apart.FetchEvent(ctx, scope, id, seq)
}

func (j *joined) LatestEvent(ctx context.Context, scope Scope, id string) (*run.Event, error) {
	if err := CheckRun(scope, id); err != nil {
		return nil, err
	}
	return j.apart.LatestEvent(ctx, scope, id)
}

func (j *joined) ListEvents(ctx context.Context, scope Scope, id string, q EventQuery) (EventPage, error) {
	if err := CheckEventQuery(scope, id, q); err != nil {
		return EventPage{}, err
	}
	return j.apart.ListEvents(ctx, scope, id, q)
}

func (j *joined) SaveGraph(ctx context.Context, owner Owner, ref graph.Ref, raw value.Value) error {
	if err := CheckSaveGraph(owner, ref, raw); err != nil {
		return err
	}
	return j.apart.SaveGraph(ctx, owner, ref, raw)
}

func (j *joined) FetchGraph(ctx context.Context, owner Owner, ref graph.Ref) (value.Value, error) {
	if err := CheckGraph(owner, ref); err != nil {
		return nil, err
	}
	raw, err := j.apart.FetchGraph(ctx, owner, ref)
	if err != nil {
		return nil, err
	}
	if err := VerifyGraph(ref, raw); err != nil {
		return nil, err
	}
	return raw, nil
}

func (j *joined) LatestGraph(ctx context.Context, owner Owner, id string) (GraphVersion, error) {
	if err := CheckGraphID(owner, id); err != nil {
		return GraphVersion{}, err
	}
	return j.apart.LatestGraph(ctx, owner, id)
}

func (j *joined) GraphVersions(ctx context.Context, owner Owner, id string, q GraphQuery) (GraphPage, error) {
	q, err := CheckGraphQuery(owner, id, q)
	if err != nil {
		return GraphPage{}, err
	}
	return j.apart.GraphVersions(ctx, owner, id, q)
}
