package backend_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// apart is a store of the older shape, as small as it can be: one table for each thing,
// and a transaction that works on copies of the tables and puts them in place at the end.
// Only one transaction runs at a time.
type apart struct {
	mu     sync.Mutex
	closed bool
	clock  func() time.Time
	last   time.Time
	data   tables
	// twice has Transact call its function on tables that are thrown away, and then again.
	twice bool
}

// tables hold rows that are replaced, never modified.
type tables struct {
	runs   map[string]apartRun
	events map[string][]apartEvent // by run, ascending
	commit map[string]map[checkpoint.ID]int64
	graphs map[apartGraph][]apartVersion // newest first
	keys   map[apartKey]apartHolder
	turns  map[backend.Owner]uint64
}

type apartRun struct {
	id, graphID, graphHash           string
	owner                            backend.Owner
	status                           run.Status
	seq                              int64
	startedAt, updatedAt, finishedAt time.Time
	raw                              []byte
	kind                             checkpoint.Type
	commit                           checkpoint.ID
	state                            claim.State
}

type apartEvent struct {
	seq int64
	raw []byte
}

type apartGraph struct {
	owner backend.Owner
	id    string
}

type apartVersion struct {
	hash string
	raw  value.Value
	at   time.Time
}

type apartKey struct {
	graph apartGraph
	key   string
}

type apartHolder struct {
	run   string
	until time.Time
}

var _ backend.Apart = (*apart)(nil)

func newApart(clock func() time.Time) *apart {
	return &apart{clock: clock, data: tables{}.clone()}
}

func (t tables) clone() tables {
	c := tables{
		runs: maps.Clone(t.runs), events: maps.Clone(t.events), commit: maps.Clone(t.commit),
		graphs: maps.Clone(t.graphs), keys: maps.Clone(t.keys), turns: maps.Clone(t.turns),
	}
	if c.runs == nil {
		c = tables{
			runs: map[string]apartRun{}, events: map[string][]apartEvent{}, commit: map[string]map[checkpoint.ID]int64{},
			graphs: map[apartGraph][]apartVersion{}, keys: map[apartKey]apartHolder{}, turns: map[backend.Owner]uint64{},
		}
	}
	return c
}

// view runs fn, which changes nothing, on the tables.
func (a *apart) view(ctx context.Context, fn func(tx *apartTx) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return backend.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if now := claim.Instant(a.clock()); now.After(a.last) {
		a.last = now
	}
	return fn(&apartTx{tables: a.data, now: a.last})
}

// transact runs fn on copies of the tables, which take their place if it succeeds.
func (a *apart) transact(ctx context.Context, fn func(tx *apartTx) error) error {
	return a.view(ctx, func(tx *apartTx) error {
		tx.tables = tx.clone()
		if err := fn(tx); err != nil {
			return err
		}
		a.data = tx.tables
		return nil
	})
}

func (a *apart) Transact(ctx context.Context, fn func(backend.ApartRuns, backend.ApartEvents) error) error {
	return a.transact(ctx, func(tx *apartTx) error {
		if a.twice {
			lost := &apartTx{tables: tx.clone(), now: tx.now}
			_ = fn(lost, lost)
		}
		return fn(tx, tx)
	})
}

func (a *apart) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	return nil
}

// alone runs one operation in a transaction of its own.
func alone[T any](ctx context.Context, a *apart, op func(tx *apartTx) (T, error)) (answer T, err error) {
	err = a.transact(ctx, func(tx *apartTx) (err error) {
		answer, err = op(tx)
		return err
	})
	return answer, err
}

// looking runs one operation that only reads.
func looking[T any](ctx context.Context, a *apart, op func(tx *apartTx) (T, error)) (answer T, err error) {
	err = a.view(ctx, func(tx *apartTx) (err error) {
		answer, err = op(tx)
		return err
	})
	return answer, err
}

type none = struct{}

func (a *apart) InsertRun(ctx context.Context, o backend.Owner, in backend.ApartInsert) (backend.Inserted, error) {
	return alone(ctx, a, func(tx *apartTx) (backend.Inserted, error) { return tx.InsertRun(ctx, o, in) })
}

func (a *apart) FetchRun(ctx context.Context, s backend.Scope, id string) (*run.Document, error) {
	return looking(ctx, a, func(tx *apartTx) (*run.Document, error) { return tx.FetchRun(ctx, s, id) })
}

func (a *apart) InspectRun(ctx context.Context, s backend.Scope, id string) (backend.Info, error) {
	return looking(ctx, a, func(tx *apartTx) (backend.Info, error) { return tx.InspectRun(ctx, s, id) })
}

func (a *apart) ListRuns(ctx context.Context, s backend.Scope, q backend.Query) (backend.Page, error) {
	return looking(ctx, a, func(tx *apartTx) (backend.Page, error) { return tx.ListRuns(ctx, s, q) })
}

func (a *apart) ClaimDue(ctx context.Context, p claim.Policy) (claim.Batch, error) {
	return alone(ctx, a, func(tx *apartTx) (claim.Batch, error) { return tx.ClaimDue(ctx, p) })
}

func (a *apart) RefreshClaim(ctx context.Context, id string, token claim.Token, now time.Time) error {
	_, err := alone(ctx, a, func(tx *apartTx) (none, error) { return none{}, tx.RefreshClaim(ctx, id, token, now) })
	return err
}

func (a *apart) ReleaseClaim(ctx context.Context, id string, token claim.Token, p claim.ReleasePolicy) error {
	_, err := alone(ctx, a, func(tx *apartTx) (none, error) { return none{}, tx.ReleaseClaim(ctx, id, token, p) })
	return err
}

func (a *apart) AbandonClaim(ctx context.Context, id string, token claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	return alone(ctx, a, func(tx *apartTx) (claim.Disposition, error) { return tx.AbandonClaim(ctx, id, token, p) })
}

func (a *apart) RetryPoisonedRun(ctx context.Context, s backend.Scope, id string, now time.Time) error {
	_, err := alone(ctx, a, func(tx *apartTx) (none, error) { return none{}, tx.RetryPoisonedRun(ctx, s, id, now) })
	return err
}

func (a *apart) Commit(ctx context.Context, s backend.Scope, p backend.ApartProposal, token claim.Token) (backend.Committed, error) {
	return alone(ctx, a, func(tx *apartTx) (backend.Committed, error) { return tx.Commit(ctx, s, p, token) })
}

func (a *apart) MutateRun(ctx context.Context, s backend.Scope, id string, fn backend.ApartMutateFunc) (bool, error) {
	return alone(ctx, a, func(tx *apartTx) (bool, error) { return tx.MutateRun(ctx, s, id, fn) })
}

func (a *apart) Append(ctx context.Context, s backend.Scope, e backend.ApartAppend) error {
	_, err := alone(ctx, a, func(tx *apartTx) (none, error) { return none{}, tx.Append(ctx, s, e) })
	return err
}

func (a *apart) CommitSeq(ctx context.Context, s backend.Scope, id string, commit checkpoint.ID) (int64, error) {
	return looking(ctx, a, func(tx *apartTx) (int64, error) { return tx.CommitSeq(ctx, s, id, commit) })
}

func (a *apart) FetchEvent(ctx context.Context, s backend.Scope, id string, seq int64) (run.Event, error) {
	return looking(ctx, a, func(tx *apartTx) (run.Event, error) { return tx.FetchEvent(ctx, s, id, seq) })
}

func (a *apart) LatestEvent(ctx context.Context, s backend.Scope, id string) (*run.Event, error) {
	return looking(ctx, a, func(tx *apartTx) (*run.Event, error) { return tx.LatestEvent(ctx, s, id) })
}

func (a *apart) ListEvents(ctx context.Context, s backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
	return looking(ctx, a, func(tx *apartTx) (backend.EventPage, error) { return tx.ListEvents(ctx, s, id, q) })
}

func (a *apart) SaveGraph(ctx context.Context, o backend.Owner, ref graph.Ref, raw value.Value) error {
	_, err := alone(ctx, a, func(tx *apartTx) (none, error) {
		g := apartGraph{o, ref.ID}
		if v, stored := tx.version(g, ref.Hash); stored {
			if !bytes.Equal(v.raw, raw) {
				return none{}, backend.ErrGraphConflict
			}
			return none{}, nil
		}
		versions := append(slices.Clone(tx.graphs[g]), apartVersion{ref.Hash, bytes.Clone(raw), tx.now})
		slices.SortFunc(versions, func(a, b apartVersion) int {
			return cmp.Or(b.at.Compare(a.at), strings.Compare(b.hash, a.hash))
		})
		tx.graphs[g] = versions
		return none{}, nil
	})
	return err
}

func (a *apart) FetchGraph(ctx context.Context, o backend.Owner, ref graph.Ref) (value.Value, error) {
	return looking(ctx, a, func(tx *apartTx) (value.Value, error) {
		v, stored := tx.version(apartGraph{o, ref.ID}, ref.Hash)
		if !stored {
			return nil, backend.ErrNotFound
		}
		return bytes.Clone(v.raw), nil
	})
}

func (a *apart) LatestGraph(ctx context.Context, o backend.Owner, id string) (backend.GraphVersion, error) {
	page, err := a.GraphVersions(ctx, o, id, backend.GraphQuery{Limit: 1})
	if err == nil && len(page.Versions) == 0 {
		err = backend.ErrNotFound
	}
	if err != nil {
		return backend.GraphVersion{}, err
	}
	return page.Versions[0], nil
}

func (a *apart) GraphVersions(ctx context.Context, o backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error) {
	return looking(ctx, a, func(tx *apartTx) (backend.GraphPage, error) {
		page := backend.GraphPage{Next: q.Before}
		for _, v := range tx.graphs[apartGraph{o, id}] {
			if c := q.Before; c != (backend.GraphCursor{}) && cmp.Or(v.at.Compare(c.PublishedAt), strings.Compare(v.hash, c.Hash)) >= 0 {
				continue
			}
			if len(page.Versions) == q.Limit {
				page.HasMore = true
				break
			}
			page.Versions = append(page.Versions, backend.GraphVersion{Ref: graph.Ref{ID: id, Hash: v.hash}, PublishedAt: v.at})
			page.Next = backend.GraphCursor{PublishedAt: v.at, Hash: v.hash}
		}
		return page, nil
	})
}

// apartTx is one transaction: both stores at once.
type apartTx struct {
	tables
	now time.Time
}

func (tx *apartTx) or(now time.Time) time.Time {
	if now.IsZero() {
		return tx.now
	}
	return now
}

func (tx *apartTx) version(g apartGraph, hash string) (apartVersion, bool) {
	i := slices.IndexFunc(tx.graphs[g], func(v apartVersion) bool { return v.hash == hash })
	if i < 0 {
		return apartVersion{}, false
	}
	return tx.graphs[g][i], true
}

func (tx *apartTx) visible(s backend.Scope, id string) (apartRun, error) {
	r, stored := tx.runs[id]
	if !stored || !s.Sees(r.owner) {
		return r, backend.ErrNotFound
	}
	return r, nil
}

func (r apartRun) document() (*run.Document, error) {
	d, err := run.Decode(r.raw)
	if err != nil {
		return nil, &backend.CorruptError{Run: r.id, What: "document", Err: err}
	}
	return d, nil
}

// put stores what a commit makes of a run.
func (tx *apartTx) put(r apartRun, p backend.ApartProposal) error {
	d := p.Document
	raw, err := run.Encode(d)
	if err != nil {
		return err
	}
	r.id, r.graphID, r.graphHash, r.status, r.seq = d.ID, d.Graph.ID, d.Graph.Hash, d.Status, d.Seq
	r.startedAt, r.updatedAt, r.finishedAt = d.StartedAt, d.UpdatedAt, d.FinishedAt
	r.raw, r.kind, r.commit = raw, p.Type, p.CheckpointID
	r.state = p.Schedule.Apply(r.state, tx.or(p.Now))
	tx.runs[r.id] = r
	return nil
}

func (tx *apartTx) InsertRun(_ context.Context, o backend.Owner, in backend.ApartInsert) (backend.Inserted, error) {
	g := apartGraph{o, in.Document.Graph.ID}
	if _, stored := tx.version(g, in.Document.Graph.Hash); !stored {
		return backend.Inserted{}, backend.ErrNotFound
	}
	now := tx.or(in.Now)
	if in.Key != "" {
		if h, taken := tx.keys[apartKey{g, in.Key}]; taken {
			if first := tx.runs[h.run]; !first.status.Terminal() || now.Before(h.until) {
				return backend.Inserted{Run: h.run, Existing: true}, nil
			}
		}
	}
	if _, taken := tx.runs[in.Document.ID]; taken {
		return backend.Inserted{}, backend.ErrConflict
	}
	if in.Key != "" {
		tx.keys[apartKey{g, in.Key}] = apartHolder{in.Document.ID, now.Add(in.Window)}
	}
	return backend.Inserted{Run: in.Document.ID}, tx.put(apartRun{owner: o}, in.ApartProposal)
}

func (tx *apartTx) FetchRun(_ context.Context, s backend.Scope, id string) (*run.Document, error) {
	r, err := tx.visible(s, id)
	if err != nil {
		return nil, err
	}
	return r.document()
}

func (tx *apartTx) InspectRun(_ context.Context, s backend.Scope, id string) (backend.Info, error) {
	r, err := tx.visible(s, id)
	if err != nil {
		return backend.Info{}, err
	}
	d, err := r.document()
	if err != nil {
		return backend.Info{}, err
	}
	return backend.Info{
		Document: d, Owner: r.owner, Wake: r.state.Wake, ClaimedAt: r.state.ClaimedAt,
		Attempts: r.state.Attempts, Abandons: r.state.Abandons, Poison: r.state.Poison,
		Type: r.kind, CheckpointID: r.commit,
	}, nil
}

func (tx *apartTx) ListRuns(_ context.Context, s backend.Scope, q backend.Query) (backend.Page, error) {
	rows := slices.SortedFunc(maps.Values(tx.runs), func(a, b apartRun) int {
		return cmp.Or(b.startedAt.Compare(a.startedAt), strings.Compare(b.id, a.id))
	})
	page := backend.Page{Next: q.Before}
	for _, r := range rows {
		c := q.Before
		if !s.Sees(r.owner) || q.GraphID != "" && q.GraphID != r.graphID || q.GraphHash != "" && q.GraphHash != r.graphHash ||
			len(q.Statuses) > 0 && !slices.Contains(q.Statuses, r.status) ||
			c != (backend.Cursor{}) && cmp.Or(r.startedAt.Compare(c.StartedAt), strings.Compare(r.id, c.Run)) >= 0 {
			continue
		}
		if len(page.Runs) == q.Limit {
			page.HasMore = true
			break
		}
		page.Runs = append(page.Runs, backend.Summary{
			Run: r.id, Owner: r.owner, Graph: graph.Ref{ID: r.graphID, Hash: r.graphHash}, Status: r.status, Seq: r.seq,
			StartedAt: r.startedAt, UpdatedAt: r.updatedAt, FinishedAt: r.finishedAt,
			Wake: r.state.Wake, ClaimedAt: r.state.ClaimedAt, Attempts: r.state.Attempts, Abandons: r.state.Abandons, Poison: r.state.Poison,
		})
		page.Next = backend.Cursor{StartedAt: r.startedAt, Run: r.id}
	}
	return page, nil
}

func (tx *apartTx) ClaimDue(_ context.Context, p claim.Policy) (claim.Batch, error) {
	p.Now = tx.or(p.Now)
	var due []claim.Candidate
	for _, r := range tx.runs {
		if class, at := r.state.Class(p.Now, p.TTL); class != claim.NoClass {
			due = append(due, claim.Candidate{ID: r.id, Owner: r.owner, Class: class, At: at, Turn: tx.turns[r.owner]})
		}
	}
	batch := claim.Batch{Now: p.Now}
	for _, i := range claim.Select(due, p, nil) {
		r := tx.runs[due[i].ID]
		next, poisoned := r.state.Acquire(p.Now, claim.Token(ulid.Make().String()), p.MaxAttempts)
		r.state = next
		tx.runs[r.id] = r
		tx.turns[r.owner] = uint64(len(tx.turns)) + slices.Max(append(slices.Collect(maps.Values(tx.turns)), 0)) + 1
		if poisoned {
			batch.Poisoned = append(batch.Poisoned, claim.PoisonedRun{Run: r.id, Owner: r.owner, GraphID: r.graphID, GraphHash: r.graphHash, Poison: next.Poison})
			continue
		}
		batch.Leases = append(batch.Leases, claim.Lease{
			Run: r.id, Owner: r.owner, GraphID: r.graphID, GraphHash: r.graphHash, Seq: r.seq,
			Token: next.Token, ClaimedAt: next.ClaimedAt, Attempt: next.Attempts, TTL: p.TTL, Class: due[i].Class,
		})
	}
	return batch, nil
}

func (tx *apartTx) RefreshClaim(_ context.Context, id string, token claim.Token, now time.Time) error {
	r, stored := tx.runs[id]
	next, err := r.state.Refresh(token, tx.or(now))
	if err == nil && stored {
		r.state = next
		tx.runs[id] = r
	}
	return err
}

func (tx *apartTx) ReleaseClaim(_ context.Context, id string, token claim.Token, p claim.ReleasePolicy) error {
	p.Now = tx.or(p.Now)
	r := tx.runs[id]
	if next, changed := r.state.Release(token, p); changed {
		r.state = next
		tx.runs[id] = r
	}
	return nil
}

func (tx *apartTx) AbandonClaim(_ context.Context, id string, token claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	p.Now = tx.or(p.Now)
	if err := p.Validate(); err != nil {
		return claim.Stale, err
	}
	r := tx.runs[id]
	next, done := r.state.Abandon(token, r.seq, p)
	if done != claim.Stale {
		r.state = next
		tx.runs[id] = r
	}
	return done, nil
}

func (tx *apartTx) RetryPoisonedRun(_ context.Context, s backend.Scope, id string, now time.Time) error {
	r, err := tx.visible(s, id)
	if err != nil {
		return err
	}
	if r.status.Terminal() {
		return backend.ErrInactiveRun
	}
	if next, changed := r.state.Recover(tx.or(now)); changed {
		r.state = next
		tx.runs[id] = r
	}
	return nil
}

func (tx *apartTx) Commit(_ context.Context, s backend.Scope, p backend.ApartProposal, token claim.Token) (backend.Committed, error) {
	r, err := tx.visible(s, p.Document.ID)
	if err != nil {
		return backend.Committed{}, err
	}
	identity := backend.Identity{Run: r.id, Graph: graph.Ref{ID: r.graphID, Hash: r.graphHash}, StartedAt: r.startedAt}
	if err := backend.CheckIdentity(identity, p.Document); err != nil {
		return backend.Committed{}, err
	}
	if r.commit == p.CheckpointID {
		return backend.Committed{Replayed: true}, nil
	}
	stored := checkpoint.Fence{Token: r.state.Token, Seq: r.seq}
	if err := stored.Check(checkpoint.Fence{Token: token, Seq: p.Expected}); err != nil {
		return backend.Committed{}, err
	}
	return backend.Committed{}, tx.put(r, p)
}

func (tx *apartTx) MutateRun(_ context.Context, s backend.Scope, id string, fn backend.ApartMutateFunc) (bool, error) {
	r, err := tx.visible(s, id)
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
	if _, stored := tx.version(apartGraph{r.owner, p.Document.Graph.ID}, p.Document.Graph.Hash); !stored {
		return false, fmt.Errorf("%w: the graph version is not stored", backend.ErrInvalidMutation)
	}
	return true, tx.put(r, *p)
}

func (tx *apartTx) Append(_ context.Context, s backend.Scope, a backend.ApartAppend) error {
	if _, err := tx.visible(s, a.Run); err != nil {
		return err
	}
	events := slices.Clone(tx.events[a.Run])
	for _, e := range a.Events {
		raw, err := run.EncodeEvent(e)
		if err != nil {
			return err
		}
		i, stored := slices.BinarySearchFunc(events, e.Seq, func(e apartEvent, seq int64) int { return cmp.Compare(e.seq, seq) })
		switch {
		case !stored:
			events = slices.Insert(events, i, apartEvent{e.Seq, raw})
		case !bytes.Equal(events[i].raw, raw):
			return backend.EventConflict(e.Seq)
		}
	}
	tx.events[a.Run] = events
	commits := maps.Clone(tx.commit[a.Run])
	if commits == nil {
		commits = make(map[checkpoint.ID]int64)
	}
	commits[a.CheckpointID] = a.Seq
	tx.commit[a.Run] = commits
	return nil
}

func (tx *apartTx) CommitSeq(_ context.Context, s backend.Scope, id string, commit checkpoint.ID) (int64, error) {
	if _, err := tx.visible(s, id); err != nil {
		return 0, err
	}
	seq, stored := tx.commit[id][commit]
	if !stored {
		return 0, backend.ErrNotFound
	}
	return seq, nil
}

func (tx *apartTx) FetchEvent(_ context.Context, s backend.Scope, id string, seq int64) (run.Event, error) {
	if _, err := tx.visible(s, id); err != nil {
		return run.Event{}, err
	}
	i, stored := slices.BinarySearchFunc(tx.events[id], seq, func(e apartEvent, seq int64) int { return cmp.Compare(e.seq, seq) })
	if !stored {
		return run.Event{}, backend.ErrNotFound
	}
	return tx.events[id][i].read(id)
}

func (e apartEvent) read(id string) (run.Event, error) {
	decoded, err := run.DecodeEvent(e.raw)
	if err != nil {
		return run.Event{}, &backend.CorruptError{Run: id, What: fmt.Sprintf("event %d", e.seq), Err: err}
	}
	return decoded, nil
}

func (tx *apartTx) LatestEvent(_ context.Context, s backend.Scope, id string) (*run.Event, error) {
	if _, err := tx.visible(s, id); err != nil {
		return nil, err
	}
	events := tx.events[id]
	if len(events) == 0 {
		return nil, nil
	}
	e, err := events[len(events)-1].read(id)
	if err != nil {
		return nil, err
	}
	return &e, nil
}

func (tx *apartTx) ListEvents(_ context.Context, s backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
	if _, err := tx.visible(s, id); err != nil {
		return backend.EventPage{}, err
	}
	page := backend.EventPage{Next: q.After}
	events := tx.events[id]
	for i, e := range events {
		if i == 0 {
			page.Oldest = e.seq
		}
		page.Latest = e.seq
		if e.seq <= q.After {
			continue
		}
		if len(page.Events) == q.Limit {
			page.HasMore = true
			continue
		}
		decoded, err := e.read(id)
		if err != nil {
			return backend.EventPage{}, err
		}
		page.Events, page.Next = append(page.Events, decoded), e.seq
	}
	return page, nil
}
