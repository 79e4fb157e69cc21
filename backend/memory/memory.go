// Package memory is the backend that keeps runs in the process: for tests, for
// simulation, and for graphs that need not outlive it. It passes the whole contract and
// declares every feature that makes sense without a database.
//
// Documents, proposed events and the values in them are kept as they were handed in,
// without copying, and documents are handed out as they are kept: as the contract says,
// nobody modifies them. The bytes of graphs are copied on the way in and on the way out,
// and lists are copies. It has no Sealer: what it keeps is as readable as the rest of the
// process's memory, and is written nowhere.
//
// Reads never wait: each run's committed state is one immutable snapshot, replaced as a
// whole. Writes to one run are serialized by a lock of its own, and only the index of due
// runs and the list are shared between runs. Finished runs are in no index that claiming
// looks at.
package memory

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belay-run/belay/backend"
	"github.com/belay-run/belay/claim"
	"github.com/belay-run/belay/value"
)

// Options configures a store.
type Options struct {
	// Now is the backend's clock. Defaults to time.Now. The store never lets it go back.
	Now func() time.Time
	// NewToken makes claim tokens; it must never repeat itself, and is not called by two
	// goroutines at once. Defaults to random ULIDs.
	NewToken func() claim.Token
	// Limits bounds documents and events. Defaults to value.Limits{}.WithDefaults().
	Limits value.Limits
	// WriteFormat is as in the stores that write documents: what an older format than
	// run.Format cannot say is refused, though nothing is encoded. Defaults to the newest.
	WriteFormat int
	// Yield, for tests, is called between the steps of an operation with the name of the
	// point ("commit: found", ...), outside of every lock, so that it may run other
	// operations or wait for them. It takes nothing from an operation's atomicity: what
	// happens between two points happens at once.
	Yield func(point string)
}

// Store is the memory backend. It is safe for concurrent use.
type Store struct {
	limits value.Limits
	format int
	clock  clock
	tokens tokens
	yield  func(point string)

	closed   atomic.Bool
	seed     maphash.Seed
	shards   [shardCount]shard
	graphs   graphs
	due      dueIndex
	list     list
	watchers watchers
}

// shardCount is how many maps the runs are spread over, so that writers rarely meet.
const shardCount = 64

// shard holds the runs whose ids hash to it.
type shard struct {
	mu   sync.RWMutex
	rows map[string]*row
}

var (
	_ backend.Store          = (*Store)(nil)
	_ backend.Batches        = (*Store)(nil)
	_ backend.ClaimDocuments = (*Store)(nil)
	_ backend.Wakes          = (*Store)(nil)
	_ backend.Clock          = (*Store)(nil)
	_ backend.Retention      = (*Store)(nil)
)

// New makes an empty store.
func New(opts Options) *Store {
	s := &Store{
		limits: opts.Limits.WithDefaults(),
		format: opts.WriteFormat,
		yield:  opts.Yield,
		seed:   maphash.MakeSeed(),
	}
	if s.yield == nil {
		s.yield = func(string) {}
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s.clock.start(opts.Now)
	s.tokens.make = opts.NewToken
	if s.tokens.make == nil {
		s.tokens.make = randomTokens()
	}
	for i := range s.shards {
		s.shards[i].rows = make(map[string]*row)
	}
	s.due.lanes[byClaim].class = byClaim
	s.graphs.owners = make(map[backend.Owner]*owner)
	return s
}

// Features declares X1 to X7 and X10.
func (s *Store) Features() backend.Features {
	return backend.Features{
		StartClaimed:   true,
		Batches:        s,
		ClaimDocuments: s,
		ClaimFilter:    true,
		Wakes:          s,
		Clock:          s,
		Retention:      s,
		OwnerCap:       true,
	}
}

// Close ends all subscriptions. Operations after it answer ErrClosed; those under way
// finish.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.watchers.close()
	return nil
}

// enter begins an operation whose arguments are in order.
func (s *Store) enter(ctx context.Context, point string) error {
	if s.closed.Load() {
		return backend.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.yield(point)
	return nil
}

func (s *Store) shardOf(id string) *shard {
	return &s.shards[maphash.String(s.seed, id)%shardCount]
}

// row is the run with this id, or nil.
func (s *Store) row(id string) *row {
	sh := s.shardOf(id)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	return sh.rows[id]
}

// visible is the run with this id if the scope sees it, with its current snapshot.
func (s *Store) visible(scope backend.Scope, id string) (*row, *snapshot, error) {
	r := s.row(id)
	if r == nil || !scope.Sees(r.owner.id) {
		return nil, nil, backend.ErrNotFound
	}
	now := r.now.Load()
	if now == nil {
		return nil, nil, backend.ErrNotFound
	}
	return r, now, nil
}
