// Package kv is a worked example of a backend that is not belay's: runs in a bbolt file. It
// imports nothing of belay but public packages, and its test is the proof that it keeps to the
// contract.
//
// It has the shape of backend.Apart: a store of runs and a store of events, and a transaction
// around both. backend.FromApart makes a backend.Store of it, and does the checks of arguments, the
// order of answers and the replays. What is left is plain: buckets, and the decisions of the
// packages claim and checkpoint.
//
//	runs     id                       -> row, as JSON
//	started  started-at, id           -> (the order of lists)
//	due      class, eligible-at, id   -> (the order of claims)
//	events   run, sequence            -> event
//	commits  run, checkpoint id       -> sequence
//	graphs   owner, graph id, hash    -> published-at, bytes
//	keys     owner, graph id, key     -> run, held until
//	turns    owner                    -> the turn of its last interleaved claim
package kv

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/checkpoint"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/graph"
	"github.com/belay-run/belay/run"
	"github.com/belay-run/belay/value"
)

// The buckets.
var (
	runsBucket    = []byte("runs")
	startedBucket = []byte("started")
	dueBucket     = []byte("due")
	eventsBucket  = []byte("events")
	commitsBucket = []byte("commits")
	graphsBucket  = []byte("graphs")
	keysBucket    = []byte("keys")
	turnsBucket   = []byte("turns")
)

// Options configures a file.
type Options struct {
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
	// NoSync leaves flushing to the operating system: for tests.
	NoSync bool
}

// Open opens the store in a file, and makes the file when there is none.
func Open(path string, o Options) (backend.Store, error) {
	f, err := openFile(path, o)
	if err != nil {
		return nil, err
	}
	return backend.FromApart(f, value.Limits{}), nil
}

// file is the store of the older shape.
type file struct {
	db  *bbolt.DB
	now func() time.Time

	mu   sync.Mutex
	last time.Time
}

var _ backend.Apart = (*file)(nil)

func openFile(path string, o Options) (*file, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 10 * time.Second, NoSync: o.NoSync})
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{runsBucket, startedBucket, dueBucket, eventsBucket, commitsBucket, graphsBucket, keysBucket, turnsBucket} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &file{db: db, now: o.Now}, nil
}

// Close closes the file.
func (f *file) Close() error { return f.db.Close() }

// present is the clock, which never goes back.
func (f *file) present() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := claim.Instant(f.now()); now.After(f.last) {
		f.last = now
	}
	return f.last
}

// update runs fn in a transaction; bbolt has one writer at a time, which serializes everything.
func update[V any](ctx context.Context, f *file, fn func(tx *tx) (V, error)) (v V, err error) {
	if err := ctx.Err(); err != nil {
		return v, err
	}
	err = f.db.Update(func(b *bbolt.Tx) (err error) {
		v, err = fn(&tx{b, f.present()})
		return err
	})
	return v, closed(err)
}

// view runs fn on a snapshot.
func view[V any](ctx context.Context, f *file, fn func(tx *tx) (V, error)) (v V, err error) {
	if err := ctx.Err(); err != nil {
		return v, err
	}
	err = f.db.View(func(b *bbolt.Tx) (err error) {
		v, err = fn(&tx{b, f.present()})
		return err
	})
	return v, closed(err)
}

func closed(err error) error {
	if errors.Is(err, bbolterrors.ErrDatabaseNotOpen) {
		return backend.ErrClosed
	}
	return err
}

// Transact runs fn on both stores in one transaction.
func (f *file) Transact(ctx context.Context, fn func(runs backend.ApartRuns, events backend.ApartEvents) error) error {
	_, err := update(ctx, f, func(tx *tx) (none, error) { return none{}, fn(tx, tx) })
	return err
}

type none = struct{}

// InsertRun and the other operations below are transactions of their own.
func (f *file) InsertRun(ctx context.Context, o backend.Owner, in backend.ApartInsert) (backend.Inserted, error) {
	return update(ctx, f, func(tx *tx) (backend.Inserted, error) { return tx.InsertRun(ctx, o, in) })
}

func (f *file) FetchRun(ctx context.Context, s backend.Scope, id string) (*run.Document, error) {
	return view(ctx, f, func(tx *tx) (*run.Document, error) { return tx.FetchRun(ctx, s, id) })
}

func (f *file) InspectRun(ctx context.Context, s backend.Scope, id string) (backend.Info, error) {
	return view(ctx, f, func(tx *tx) (backend.Info, error) { return tx.InspectRun(ctx, s, id) })
}

func (f *file) ListRuns(ctx context.Context, s backend.Scope, q backend.Query) (backend.Page, error) {
	return view(ctx, f, func(tx *tx) (backend.Page, error) { return tx.ListRuns(ctx, s, q) })
}

func (f *file) ClaimDue(ctx context.Context, p claim.Policy) (claim.Batch, error) {
	return update(ctx, f, func(tx *tx) (claim.Batch, error) { return tx.ClaimDue(ctx, p) })
}

func (f *file) RefreshClaim(ctx context.Context, id string, token claim.Token, now time.Time) error {
	_, err := update(ctx, f, func(tx *tx) (none, error) { return none{}, tx.RefreshClaim(ctx, id, token, now) })
	return err
}

func (f *file) ReleaseClaim(ctx context.Context, id string, token claim.Token, p claim.ReleasePolicy) error {
	_, err := update(ctx, f, func(tx *tx) (none, error) { return none{}, tx.ReleaseClaim(ctx, id, token, p) })
	return err
}

func (f *file) AbandonClaim(ctx context.Context, id string, token claim.Token, p claim.AbandonPolicy) (claim.Disposition, error) {
	return update(ctx, f, func(tx *tx) (claim.Disposition, error) { return tx.AbandonClaim(ctx, id, token, p) })
}

func (f *file) RetryPoisonedRun(ctx context.Context, s backend.Scope, id string, now time.Time) error {
	_, err := update(ctx, f, func(tx *tx) (none, error) { return none{}, tx.RetryPoisonedRun(ctx, s, id, now) })
	return err
}

func (f *file) Commit(ctx context.Context, s backend.Scope, p backend.ApartProposal, token claim.Token) (backend.Committed, error) {
	return update(ctx, f, func(tx *tx) (backend.Committed, error) { return tx.Commit(ctx, s, p, token) })
}

func (f *file) MutateRun(ctx context.Context, s backend.Scope, id string, fn backend.ApartMutateFunc) (bool, error) {
	return update(ctx, f, func(tx *tx) (bool, error) { return tx.MutateRun(ctx, s, id, fn) })
}

func (f *file) Append(ctx context.Context, s backend.Scope, a backend.ApartAppend) error {
	_, err := update(ctx, f, func(tx *tx) (none, error) { return none{}, tx.Append(ctx, s, a) })
	return err
}

func (f *file) CommitSeq(ctx context.Context, s backend.Scope, id string, commit checkpoint.ID) (int64, error) {
	return view(ctx, f, func(tx *tx) (int64, error) { return tx.CommitSeq(ctx, s, id, commit) })
}

func (f *file) FetchEvent(ctx context.Context, s backend.Scope, id string, seq int64) (run.Event, error) {
	return view(ctx, f, func(tx *tx) (run.Event, error) { return tx.FetchEvent(ctx, s, id, seq) })
}

func (f *file) LatestEvent(ctx context.Context, s backend.Scope, id string) (*run.Event, error) {
	return view(ctx, f, func(tx *tx) (*run.Event, error) { return tx.LatestEvent(ctx, s, id) })
}

func (f *file) ListEvents(ctx context.Context, s backend.Scope, id string, q backend.EventQuery) (backend.EventPage, error) {
	return view(ctx, f, func(tx *tx) (backend.EventPage, error) { return tx.ListEvents(ctx, s, id, q) })
}

func (f *file) SaveGraph(ctx context.Context, o backend.Owner, ref graph.Ref, raw value.Value) error {
	_, err := update(ctx, f, func(tx *tx) (none, error) { return none{}, tx.saveGraph(o, ref, raw) })
	return err
}

func (f *file) FetchGraph(ctx context.Context, o backend.Owner, ref graph.Ref) (value.Value, error) {
	return view(ctx, f, func(tx *tx) (value.Value, error) { return tx.fetchGraph(o, ref) })
}

func (f *file) LatestGraph(ctx context.Context, o backend.Owner, id string) (backend.GraphVersion, error) {
	page, err := f.GraphVersions(ctx, o, id, backend.GraphQuery{Limit: 1})
	switch {
	case err != nil:
		return backend.GraphVersion{}, err
	case len(page.Versions) == 0:
		return backend.GraphVersion{}, backend.ErrNotFound
	}
	return page.Versions[0], nil
}

func (f *file) GraphVersions(ctx context.Context, o backend.Owner, id string, q backend.GraphQuery) (backend.GraphPage, error) {
	return view(ctx, f, func(tx *tx) (backend.GraphPage, error) { return tx.graphVersions(o, id, q) })
}
