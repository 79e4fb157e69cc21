package kv

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/run"
)

// holder is the run that holds a start key, at least until then.
type holder struct {
	Run   string `json:"run"`
	Until int64  `json:"until"`
}

func (t *tx) InsertRun(_ context.Context, o backend.Owner, in backend.ApartInsert) (backend.Inserted, error) {
	d := in.Document
	if t.Bucket(graphsBucket).Get(key(tenantOf(o), d.Graph.ID, d.Graph.Hash)) == nil {
		return backend.Inserted{}, backend.ErrNotFound
	}
	now, held := t.or(in.Now), key(tenantOf(o), d.Graph.ID, in.Key)
	if in.Key != "" {
		if raw := t.Bucket(keysBucket).Get(held); raw != nil {
			var h holder
			if err := json.Unmarshal(raw, &h); err != nil {
				return backend.Inserted{}, &backend.CorruptError{Run: d.ID, What: "start key", Err: err}
			}
			first, err := t.find(h.Run)
			if err != nil {
				return backend.Inserted{}, err
			}
			if first != nil && (!first.Status.Terminal() || now.UnixMicro() < h.Until) {
				return backend.Inserted{Run: h.Run, Existing: true}, nil
			}
		}
	}
	if t.Bucket(runsBucket).Get([]byte(d.ID)) != nil {
		return backend.Inserted{}, backend.ErrConflict
	}
	if in.Key != "" {
		raw, err := json.Marshal(holder{Run: d.ID, Until: now.Add(in.Window).UnixMicro()})
		if err != nil {
			return backend.Inserted{}, err
		}
		if err := t.Bucket(keysBucket).Put(held, raw); err != nil {
			return backend.Inserted{}, err
		}
	}
	return backend.Inserted{Run: d.ID}, t.put(&row{Tenant: tenantOf(o)}, in.ApartProposal)
}

func (t *tx) FetchRun(_ context.Context, s backend.Scope, id string) (*run.Document, error) {
	r, err := t.visible(s, id)
	if err != nil {
		return nil, err
	}
	return r.document()
}

func (t *tx) InspectRun(_ context.Context, s backend.Scope, id string) (backend.Info, error) {
	r, err := t.visible(s, id)
	if err != nil {
		return backend.Info{}, err
	}
	d, err := r.document()
	if err != nil {
		return backend.Info{}, err
	}
	state := r.state()
	return backend.Info{
		Document: d, Owner: r.owner(), Wake: state.Wake, ClaimedAt: state.ClaimedAt, Attempts: state.Attempts, Abandons: state.Abandons,
		Poison: state.Poison, Type: r.Type, CheckpointID: r.Commit,
	}, nil
}

func (t *tx) ListRuns(_ context.Context, s backend.Scope, q backend.Query) (backend.Page, error) {
	page := backend.Page{Next: q.Before}
	c := t.Bucket(startedBucket).Cursor()
	k, _ := c.Last()
	if q.Before != (backend.Cursor{}) {
		// What stands before the cursor, in this bucket's order, comes after it in the list.
		if k, _ = c.Seek(startedKey(q.Before.StartedAt.UnixMicro(), q.Before.Run)); k == nil {
			k, _ = c.Last()
		} else {
			k, _ = c.Prev()
		}
	}
	for ; k != nil; k, _ = c.Prev() {
		r, err := t.find(string(k[8:]))
		if err != nil {
			return page, err
		}
		if !s.Sees(r.owner()) || q.GraphID != "" && q.GraphID != r.Graph.ID || q.GraphHash != "" && q.GraphHash != r.Graph.Hash ||
			len(q.Statuses) > 0 && !slices.Contains(q.Statuses, r.Status) {
			continue
		}
		if len(page.Runs) == q.Limit {
			page.HasMore = true
			break
		}
		state := r.state()
		page.Runs = append(page.Runs, backend.Summary{
			Run: r.ID, Owner: r.owner(), Graph: r.Graph, Status: r.Status, Seq: r.Seq,
			StartedAt: instant(r.StartedAt), UpdatedAt: instant(r.UpdatedAt), FinishedAt: instant(r.FinishedAt),
			Wake: state.Wake, ClaimedAt: state.ClaimedAt, Attempts: state.Attempts, Abandons: state.Abandons, Poison: state.Poison,
		})
		page.Next = backend.Cursor{StartedAt: instant(r.StartedAt), Run: r.ID}
	}
	return page, nil
}

// candidates are the runs of one class that may be claimed, the oldest first: as many as the
// batch holds, or all of them when owners come before age.
func (t *tx) candidates(class claim.Class, p claim.Policy) ([]claim.Candidate, error) {
	var due []claim.Candidate
	c := t.Bucket(dueBucket).Cursor()
	prefix := []byte{byte(class)}
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		r, err := t.find(string(k[9:]))
		if err != nil {
			return nil, err
		}
		is, at := r.state().Class(p.Now, p.TTL)
		if is != class || p.Fairness == claim.OldestFirst && len(due) == p.Limit {
			break
		}
		due = append(due, claim.Candidate{ID: r.ID, Owner: r.owner(), Class: class, At: at, Turn: t.turn(r.Tenant)})
	}
	return due, nil
}

func (t *tx) turn(tenant string) uint64 {
	if raw := t.Bucket(turnsBucket).Get(key(tenant)); raw != nil {
		return binary.BigEndian.Uint64(raw)
	}
	return 0
}

// takeTurn puts an owner behind all others.
func (t *tx) takeTurn(tenant string) error {
	n, err := t.Bucket(turnsBucket).NextSequence()
	if err != nil {
		return err
	}
	return t.Bucket(turnsBucket).Put(key(tenant), binary.BigEndian.AppendUint64(nil, n))
}

func (t *tx) ClaimDue(_ context.Context, p claim.Policy) (claim.Batch, error) {
	p.Now = t.or(p.Now)
	ready, err := t.candidates(claim.Ready, p)
	if err != nil {
		return claim.Batch{}, err
	}
	expired, err := t.candidates(claim.Expired, p)
	if err != nil {
		return claim.Batch{}, err
	}
	due := append(ready, expired...)
	batch := claim.Batch{Now: p.Now}
	for _, i := range claim.Select(due, p, nil) {
		r, err := t.find(due[i].ID)
		if err != nil {
			return claim.Batch{}, err
		}
		next, poisoned := r.state().Acquire(p.Now, claim.Token(ulid.Make().String()), p.MaxAttempts)
		if err := t.change(r, func() { r.setState(next) }); err != nil {
			return claim.Batch{}, err
		}
		if p.Fairness == claim.Interleave {
			if err := t.takeTurn(r.Tenant); err != nil {
				return claim.Batch{}, err
			}
		}
		if poisoned {
			batch.Poisoned = append(batch.Poisoned, claim.PoisonedRun{
				Run: r.ID, Owner: r.owner(), GraphID: r.Graph.ID, GraphHash: r.Graph.Hash, Poison: next.Poison,
			})
			continue
		}
		batch.Leases = append(batch.Leases, claim.Lease{
			Run: r.ID, Owner: r.owner(), GraphID: r.Graph.ID, GraphHash: r.Graph.Hash, Seq: r.Seq,
			Token: next.Token, ClaimedAt: next.ClaimedAt, Attempt: next.Attempts, TTL: p.TTL, Class: due[i].Class,
		})
	}
	return batch, nil
}

func (t *tx) RefreshClaim(_ context.Context, id string, token claim.Token, now time.Time) error {
	r, err := t.find(id)
	if err != nil {
		return err
	}
	if r == nil {
		return backend.ErrClaimLost
	}
	next, err := r.state().Refresh(token, t.or(now))
	if err != nil {
		return err
	}
	return t.change(r, func() { r.setState(next) })
}

func (t *tx) ReleaseClaim(_ context.Context, id string, token claim.Token, p claim.ReleasePolicy) error {
	p.Now = t.or(p.Now)
	r, err := t.find(id)
	if err != nil || r == nil {
		return err
	}
	next, changed := r.state().Release(token, p)
	if !changed {
		return nil
	}
	return t.change(r, func() { r.setState(next) })
}

func (t *tx) AbandonClaim(_ context.Context, id string, token claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	p.Now = t.or(p.Now)
	if err := p.Validate(); err != nil {
		return claim.Stale, err
	}
	r, err := t.find(id)
	if err != nil || r == nil {
		return claim.Stale, err
	}
	next, done := r.state().Abandon(token, r.Seq, p)
	if done == claim.Stale {
		return done, nil
	}
	return done, t.change(r, func() { r.setState(next) })
}

func (t *tx) RetryPoisonedRun(_ context.Context, s backend.Scope, id string, now time.Time) error {
	r, err := t.visible(s, id)
	if err != nil {
		return err
	}
	if r.Status.Terminal() {
		return backend.ErrInactiveRun
	}
	next, changed := r.state().Recover(t.or(now))
	if !changed {
		return nil
	}
	return t.change(r, func() { r.setState(next) })
}

func (t *tx) Commit(_ context.Context, s backend.Scope, p backend.ApartProposal, token claim.Token) (backend.Committed, error) {
	r, err := t.visible(s, p.Document.ID)
	if err != nil {
		return backend.Committed{}, err
	}
	if err := backend.CheckIdentity(backend.Identity{Run: r.ID, Graph: r.Graph, StartedAt: instant(r.StartedAt)}, p.Document); err != nil {
		return backend.Committed{}, err
	}
	if r.Commit == p.CheckpointID {
		return backend.Committed{Replayed: true}, nil
	}
	stored := checkpoint.Fence{Token: claim.Token(r.Token), Seq: r.Seq}
	if err := stored.Check(checkpoint.Fence{Token: token, Seq: p.Expected}); err != nil {
		return backend.Committed{}, err
	}
	return backend.Committed{}, t.put(r, p)
}

func (t *tx) MutateRun(_ context.Context, s backend.Scope, id string, fn backend.ApartMutateFunc) (bool, error) {
	r, err := t.visible(s, id)
	if err != nil {
		return false, err
	}
	d, err := r.document()
	if err != nil {
		return false, err
	}
	p, err := fn(d)
	if err != nil || p == nil {
		return false, err
	}
	if t.Bucket(graphsBucket).Get(key(r.Tenant, p.Document.Graph.ID, p.Document.Graph.Hash)) == nil {
		return false, fmt.Errorf("%w: the graph version is not stored", backend.ErrInvalidMutation)
	}
	return true, t.put(r, *p)
}
