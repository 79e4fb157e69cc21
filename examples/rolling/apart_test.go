//go:build unix

package rolling

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
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

// apart is a backend of the older shape, which appends events apart, on the file of a native store. What
// inserts, commits and mutations write is written here, in transactions of its own; the native store does
// the rest.
type apart struct {
	*sqlite.Store
	db     *sql.DB
	now    func() time.Time
	closed atomic.Bool
}

var _ backend.Apart = (*apart)(nil)

// fromApart opens a file through the adapter.
func fromApart(path string, now func() time.Time) (backend.Store, error) {
	s, err := sqlite.Open(context.Background(), path, sqlite.Options{SharedDirectory: true, Synchronous: sqlite.Normal, Now: now})
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", s.HostDSN())
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	db.SetMaxOpenConns(1) // the file has one writer
	return backend.FromApart(&apart{Store: s, db: db, now: now}, value.Limits{}), nil
}

func (a *apart) Close() error {
	if a.closed.Swap(true) {
		return nil
	}
	return errors.Join(a.db.Close(), a.Store.Close())
}

// Transact begins with the file's write lock, so that nobody writes between what fn reads and writes.
func (a *apart) Transact(ctx context.Context, fn func(backend.ApartRuns, backend.ApartEvents) error) error {
	if a.closed.Load() {
		return backend.ErrClosed
	}
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return trouble("begin", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	both := &apartTx{apart: a, tx: tx}
	if err := fn(both, both); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return trouble("commit", err)
	}
	return nil
}

// trouble is what goes wrong between here and the file.
func trouble(op string, err error) error {
	return &backend.InfrastructureError{Op: op, Nature: backend.Unknown, Err: err}
}

func (a *apart) InsertRun(ctx context.Context, owner backend.Owner, in backend.ApartInsert) (done backend.Inserted, err error) {
	err = a.Transact(ctx, func(runs backend.ApartRuns, _ backend.ApartEvents) error {
		done, err = runs.InsertRun(ctx, owner, in)
		return err
	})
	return done, err
}

func (a *apart) Commit(ctx context.Context, scope backend.Scope, p backend.ApartProposal, token claim.Token) (done backend.Committed, err error) {
	err = a.Transact(ctx, func(runs backend.ApartRuns, _ backend.ApartEvents) error {
		done, err = runs.Commit(ctx, scope, p, token)
		return err
	})
	return done, err
}

func (a *apart) MutateRun(ctx context.Context, scope backend.Scope, id string, fn backend.ApartMutateFunc) (committed bool, err error) {
	err = a.Transact(ctx, func(runs backend.ApartRuns, _ backend.ApartEvents) error {
		committed, err = runs.MutateRun(ctx, scope, id, fn)
		return err
	})
	return committed, err
}

func (a *apart) Append(ctx context.Context, scope backend.Scope, p backend.ApartAppend) error {
	return a.Transact(ctx, func(_ backend.ApartRuns, events backend.ApartEvents) error { return events.Append(ctx, scope, p) })
}

func (a *apart) CommitSeq(ctx context.Context, scope backend.Scope, id string, commit checkpoint.ID) (seq int64, err error) {
	err = a.Transact(ctx, func(_ backend.ApartRuns, events backend.ApartEvents) error {
		seq, err = events.CommitSeq(ctx, scope, id, commit)
		return err
	})
	return seq, err
}

// apartTx is both stores in one transaction. What only reads, or claims, is the native store's and not
// for use in here.
type apartTx struct {
	*apart
	tx *sql.Tx
}

// row is what is stored of a run.
type row struct {
	number   int64
	owner    string
	graph    graph.Ref
	started  int64
	seq      int64
	token    sql.NullString
	claimed  sql.NullInt64
	commit   checkpoint.ID
	document []byte
}

// find reads a run's row. backend.ErrNotFound.
func (t *apartTx) find(ctx context.Context, scope backend.Scope, id string) (r row, err error) {
	err = t.tx.QueryRowContext(ctx, `select r.no, r.owner, r.graph_id, r.graph_hash, r.started_at, r.checkpoint_seq, r.claim_token, r.claimed_at,
		r.checkpoint_id, d.body from belay_runs r join belay_documents d on d.run = r.no where r.id = ?`, id).
		Scan(&r.number, &r.owner, &r.graph.ID, &r.graph.Hash, &r.started, &r.seq, &r.token, &r.claimed, &r.commit, &r.document)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !scope.Sees(ownerOf(r.owner)) {
		return r, backend.ErrNotFound
	}
	if err != nil {
		return r, trouble("find run", err)
	}
	return r, nil
}

// state is the run's claim.
func (r row) state() (s claim.State) {
	if r.token.Valid {
		s.Token, s.ClaimedAt = claim.Token(r.token.String), time.UnixMicro(r.claimed.Int64).UTC()
	}
	return s
}

// ownerOf and tenantOf are how the native store writes an owner: a tenant's id, or nothing.
func ownerOf(tenant string) backend.Owner {
	if tenant == "" {
		return backend.Tenantless()
	}
	return backend.Tenant(tenant)
}

func tenantOf(owner backend.Owner) string {
	tenant, _ := owner.Tenant()
	return tenant
}

// stored says whether a version of a graph is.
func (t *apartTx) stored(ctx context.Context, tenant string, ref graph.Ref) (found bool, err error) {
	err = t.tx.QueryRowContext(ctx, "select exists (select 1 from belay_graphs where owner = ? and graph_id = ? and graph_hash = ?)",
		tenant, ref.ID, ref.Hash).Scan(&found)
	if err != nil {
		return false, trouble("find graph", err)
	}
	return found, nil
}

func (t *apartTx) InsertRun(ctx context.Context, owner backend.Owner, in backend.ApartInsert) (backend.Inserted, error) {
	d, tenant := in.Document, tenantOf(owner)
	if found, err := t.stored(ctx, tenant, d.Graph); err != nil || !found {
		return backend.Inserted{}, cmp.Or(err, backend.ErrNotFound)
	}
	now := t.or(in.Now)
	if in.Key != "" {
		var first, status string
		var until int64
		err := t.tx.QueryRowContext(ctx, `select r.id, r.status, k.held_until from belay_start_keys k join belay_runs r on r.no = k.run
			where k.owner = ? and k.graph_id = ? and k.start_key = ?`, tenant, d.Graph.ID, in.Key).Scan(&first, &status, &until)
		switch {
		case err == nil && (!run.Status(status).Terminal() || now.UnixMicro() < until):
			return backend.Inserted{Run: first, Existing: true}, nil
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			return backend.Inserted{}, trouble("find key", err)
		}
	}
	if _, err := t.find(ctx, backend.System(), d.ID); !errors.Is(err, backend.ErrNotFound) {
		return backend.Inserted{}, cmp.Or(err, backend.ErrConflict)
	}
	after := in.Schedule.Apply(claim.State{}, now)
	var number int64
	err := t.tx.QueryRowContext(ctx, `insert into belay_runs (id, owner, graph_id, graph_hash, status, started_at, updated_at, wake_at,
		checkpoint_seq, checkpoint_type, checkpoint_id) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) returning no`,
		d.ID, tenant, d.Graph.ID, d.Graph.Hash, string(d.Status), d.StartedAt.UnixMicro(), d.UpdatedAt.UnixMicro(), micros(after.Wake),
		d.Seq, string(in.Type), string(in.CheckpointID)).Scan(&number)
	if err != nil {
		return backend.Inserted{}, trouble("insert run", err)
	}
	if in.Key != "" {
		err := t.exec(ctx, "insert into belay_start_keys (owner, graph_id, start_key, run, held_until) values (?, ?, ?, ?, ?) "+
			"on conflict (owner, graph_id, start_key) do update set run = excluded.run, held_until = excluded.held_until",
			tenant, d.Graph.ID, in.Key, number, now.Add(in.Window).UnixMicro())
		if err != nil {
			return backend.Inserted{}, err
		}
	}
	raw, err := run.Encode(d)
	if err != nil {
		return backend.Inserted{}, err
	}
	return backend.Inserted{Run: d.ID}, t.exec(ctx, "insert into belay_documents (run, body) values (?, ?)", number, raw)
}

func (t *apartTx) Commit(ctx context.Context, scope backend.Scope, p backend.ApartProposal, token claim.Token) (backend.Committed, error) {
	r, err := t.find(ctx, scope, p.Document.ID)
	if err != nil {
		return backend.Committed{}, err
	}
	identity := backend.Identity{Run: p.Document.ID, Graph: r.graph, StartedAt: time.UnixMicro(r.started).UTC()}
	if err := backend.CheckIdentity(identity, p.Document); err != nil {
		return backend.Committed{}, err
	}
	if r.commit == p.CheckpointID {
		return backend.Committed{Replayed: true}, nil
	}
	fence := checkpoint.Fence{Token: r.state().Token, Seq: r.seq}
	if err := fence.Check(checkpoint.Fence{Token: token, Seq: p.Expected}); err != nil {
		return backend.Committed{}, err
	}
	return backend.Committed{}, t.put(ctx, r, p)
}

func (t *apartTx) MutateRun(ctx context.Context, scope backend.Scope, id string, fn backend.ApartMutateFunc) (bool, error) {
	r, err := t.find(ctx, scope, id)
	if err != nil {
		return false, err
	}
	d, err := run.Decode(r.document)
	if err != nil {
		return false, &backend.CorruptError{Run: id, What: "document", Err: err}
	}
	p, err := fn(d)
	if err != nil || p == nil {
		return false, err
	}
	if found, err := t.stored(ctx, r.owner, p.Document.Graph); err != nil || !found {
		return false, cmp.Or(err, fmt.Errorf("%w: the graph version is not stored", backend.ErrInvalidMutation))
	}
	return true, t.put(ctx, r, *p)
}

// put stores what a commit makes of a run.
func (t *apartTx) put(ctx context.Context, r row, p backend.ApartProposal) error {
	d := p.Document
	after := p.Schedule.Apply(r.state(), t.or(p.Now))
	err := t.exec(ctx, `update belay_runs set graph_hash = ?, status = ?, updated_at = ?, finished_at = ?, wake_at = ?, claim_token = ?, claimed_at = ?,
		claim_attempts = 0, claim_abandons = 0, poisoned_at = null, poison_reason = null, checkpoint_seq = ?, checkpoint_type = ?, checkpoint_id = ?
		where no = ?`,
		d.Graph.Hash, string(d.Status), d.UpdatedAt.UnixMicro(), micros(d.FinishedAt), micros(after.Wake),
		sql.NullString{String: string(after.Token), Valid: after.Token != ""}, micros(after.ClaimedAt),
		d.Seq, string(p.Type), string(p.CheckpointID), r.number)
	if err != nil {
		return err
	}
	raw, err := run.Encode(d)
	if err != nil {
		return err
	}
	return t.exec(ctx, "update belay_documents set body = ? where run = ?", raw, r.number)
}

func (t *apartTx) Append(ctx context.Context, scope backend.Scope, a backend.ApartAppend) error {
	r, err := t.find(ctx, scope, a.Run)
	if err != nil {
		return err
	}
	for i := range a.Events {
		e := &a.Events[i]
		raw, err := run.EncodeEvent(*e)
		if err != nil {
			return err
		}
		var stored []byte
		err = t.tx.QueryRowContext(ctx, "select body from belay_events where run = ? and seq = ?", r.number, e.Seq).Scan(&stored)
		switch {
		case err == nil && bytes.Equal(stored, raw):
			continue
		case err == nil:
			return backend.EventConflict(e.Seq)
		case !errors.Is(err, sql.ErrNoRows):
			return trouble("find event", err)
		}
		closing := sql.NullString{String: string(a.CheckpointID), Valid: e.Type == run.EventCheckpointCommitted}
		if err := t.exec(ctx, "insert into belay_events (run, seq, checkpoint_id, body) values (?, ?, ?, ?)", r.number, e.Seq, closing, raw); err != nil {
			return err
		}
	}
	return nil
}

func (t *apartTx) CommitSeq(ctx context.Context, scope backend.Scope, id string, commit checkpoint.ID) (int64, error) {
	r, err := t.find(ctx, scope, id)
	if err != nil {
		return 0, err
	}
	var raw []byte
	err = t.tx.QueryRowContext(ctx, "select body from belay_events where run = ? and checkpoint_id = ?", r.number, string(commit)).Scan(&raw)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, backend.ErrNotFound
	}
	if err != nil {
		return 0, trouble("find commit", err)
	}
	e, err := run.DecodeEvent(raw)
	if err != nil {
		return 0, &backend.CorruptError{Run: id, What: "event", Err: err}
	}
	return e.Commit, nil
}

func (t *apartTx) exec(ctx context.Context, statement string, args ...any) error {
	if _, err := t.tx.ExecContext(ctx, statement, args...); err != nil {
		return trouble("write", err)
	}
	return nil
}

// or is the instant of a proposal, or the clock's.
func (t *apartTx) or(now time.Time) time.Time {
	if now.IsZero() {
		return claim.Instant(t.now())
	}
	return now
}

// micros is how the native store writes an instant.
func micros(at time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: at.UnixMicro(), Valid: !at.IsZero()}
}
